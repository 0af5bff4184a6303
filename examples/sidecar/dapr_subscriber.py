"""A subscriber written for Dapr with its SDK for FastAPI; nothing in it knows of reconsume.

    python -m examples.sidecar.dapr_subscriber PORT TOPIC

Behind `profile = "dapr"` it says by itself what it subscribes to (`GET /dapr/subscribe`).
"""

import sys
from typing import Any

import uvicorn
from dapr.ext.fastapi import DaprApp
from fastapi import Body, FastAPI

port, topic = int(sys.argv[1]), sys.argv[2]
app = FastAPI()
dapr = DaprApp(app)


@dapr.subscribe(pubsub="pubsub", topic=topic, route="/flights")  # type: ignore[untyped-decorator]  # Dapr's SDK has no types
async def on_flight(event: Any = Body()) -> dict[str, str]:
    flight = event["data"]
    print("flight", flight["number"], flush=True)
    if flight.get("dep_time") is None:
        raise ValueError("no dep_time")  # 500: it is delivered again
    if flight.get("cancelled"):
        return {"status": "DROP"}  # it rests in the dead-letter topic
    return {"status": "SUCCESS"}


uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
