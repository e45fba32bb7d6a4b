"""A server as most people write it: ONNX Runtime behind FastAPI and uvicorn, with one worker.
usage: serve_fastapi.py MODEL.onnx PORT    needs fastapi, uvicorn, numpy, onnxruntime
POST / with floats as the body answers with floats; POST /json takes {"data": [...]} and answers likewise."""

import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
app = FastAPI()


class Sample(BaseModel):
    data: list[float]


@app.post("/")
async def raw(request: Request):
    x = np.frombuffer(await request.body(), np.float32).reshape(1, -1)
    return Response(session.run(None, {"input": x})[0].tobytes(), media_type="application/octet-stream")


@app.post("/json")
async def as_json(sample: Sample):
    x = np.asarray(sample.data, np.float32).reshape(1, -1)
    return {"data": session.run(None, {"input": x})[0].ravel().tolist()}


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", access_log=False)
