"""Sign-in with a provider, and sign-out."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from reconsume.console.pages.forms import FormReader
from reconsume.console.sign_in.oidc import SignInFailed
from reconsume.console.sign_in.sign_in import SignIn
from reconsume.console.web.faults import Refusal
from reconsume.console.web.rendering import Renderer

_UNAUTHORIZED: Final = 401


class SignInPages:
    """Sends browsers to the provider, and handles their return.

    Args:
        sign_in: uses the provider.
        renderer: renders the pages.
        forms: reads the form of the sign-out.
    """

    def __init__(self, sign_in: SignIn, renderer: Renderer, forms: FormReader) -> None:
        self._sign_in = sign_in
        self._renderer = renderer
        self._forms = forms

    def begin(self, request: Request) -> Response:
        """Redirect to the provider."""
        try:
            return self._sign_in.begin(request)
        except SignInFailed as error:
            raise Refusal(_UNAUTHORIZED, str(error)) from None

    def finish(self, request: Request) -> Response:
        """Handle the return from the provider."""
        try:
            return self._sign_in.finish(request)
        except SignInFailed as error:
            raise Refusal(_UNAUTHORIZED, str(error)) from None

    async def end(self, request: Request) -> Response:
        """Sign out."""
        await self._forms.read(request)
        return self._sign_in.end()

    async def signed_out(self, request: Request) -> Response:
        """Show that the person is signed out, and offer to sign in again."""
        return self._renderer.page(request, "signed_out.html", {})
