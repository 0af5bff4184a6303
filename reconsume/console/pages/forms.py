"""Forms from browsers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from reconsume.console.pages.filters import MOST_PLACES
from reconsume.console.sign_in.sign_in import SignIn
from reconsume.console.sign_in.tokens import same_secret
from reconsume.console.web.faults import Refusal
from reconsume.console.web.guard import caller_of

Form = dict[str, list[str]]
_FIELDS: Final = 2 * MOST_PLACES + 20


class FormReader:
    """Reads forms of this console, and refuses others.

    Args:
        sign_in: knows the token in the forms of a person.
    """

    def __init__(self, sign_in: SignIn) -> None:
        self._sign_in = sign_in

    async def read(self, request: Request) -> Form:
        """Return the fields of a form.

        Raises:
            Refusal: the body is too large, is not a form, or lacks the token of our forms.
        """
        try:
            text = (await request.body()).decode("ascii")
            form = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
        except ValueError:
            raise Refusal(400, "what was sent is no form of this console, or one with too many fields") from None
        if not same_secret(last(form, "form_token"), self._sign_in.token_of_forms(caller_of(request))):
            raise Refusal(
                403,
                "the form is not of this console, or of one that was started again since: go back, reload the page "
                "that the form stands on, and send it again",
            )
        return form

    def then(self, act: Callable[[Request, Form], Response]) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint of the same name that reads the form and acts in a thread."""

        @wraps(act)
        async def endpoint(request: Request) -> Response:
            return await run_in_threadpool(act, request, await self.read(request))

        return endpoint


def last(form: Form, name: str) -> str:
    """Return the last value of a field, or an empty text."""
    return form.get(name, [""])[-1]
