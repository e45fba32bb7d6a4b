"""Writes the .onnx files of this folder, with samples and the outputs that they give: Keras models as people write them,
saved by model.export(format="onnx"), which calls tf2onnx.

    pip install tensorflow-cpu==2.21.0 keras==3.15.1 tf2onnx==1.17.0 onnxruntime
    python make_models.py [NAME ...]

Outputs are ONNX Runtime's, or those of Keras for a file that ONNX Runtime does not take."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import onnxruntime
from keras import Input, Model, Sequential
from keras import layers as L

FOLDER = pathlib.Path(__file__).parent
MODELS = {}
SAMPLES = 3


def model(function):
    MODELS[function.__name__.replace("_", "-")] = function
    return function


@model
def dense():
    return Sequential([Input((6,)), L.Dense(8), L.BatchNormalization(), L.ReLU(), L.Dropout(0.3), L.Dense(3, activation="softmax")])


@model
def conv_valid():
    return Sequential([Input((10, 10, 1)), L.Conv2D(3, 3, activation="relu"), L.MaxPooling2D(), L.Conv2D(4, 3, activation="relu"),
                       L.Flatten(), L.Dropout(0.5), L.Dense(3, activation="softmax")])


@model
def conv_same():
    return Sequential([Input((9, 7, 2)), L.Conv2D(3, 3, strides=2, padding="same", use_bias=False), L.BatchNormalization(),
                       L.Activation("relu"), L.Conv2D(4, 5, strides=2, padding="same", activation="elu"),
                       L.AveragePooling2D(2, padding="same"), L.Flatten(), L.Dense(2)])


@model
def mobile():
    x = i = Input((8, 8, 3))
    x = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(x)))
    x = L.ZeroPadding2D(((0, 1), (0, 1)))(x)
    x = L.ReLU(6.0)(L.BatchNormalization()(L.DepthwiseConv2D(3, strides=2, use_bias=False)(x)))
    x = L.Activation("swish")(L.SeparableConv2D(6, 3, padding="same")(x))
    return Model(i, L.Dense(1, activation="sigmoid")(L.GlobalAveragePooling2D()(x)))


@model
def residual():
    x = i = Input((6, 6, 2))
    x = L.Rescaling(1 / 2.0, offset=-0.5)(x)
    y = L.Conv2D(4, 3, strides=2, padding="same")(x)
    y = L.BatchNormalization()(L.Conv2D(4, 3, padding="same")(L.ReLU()(L.BatchNormalization()(y))))
    x = L.ReLU()(L.Add()([y, L.Conv2D(4, 1, strides=2)(x)]))
    return Model(i, L.Dense(3)(L.GlobalAveragePooling2D()(x)))


@model
def u_net():
    x = i = Input((8, 8, 2))
    a = L.Conv2D(2, 3, padding="same", activation="relu")(x)
    x = L.UpSampling2D()(L.Conv2D(3, 3, padding="same", activation="relu")(L.MaxPooling2D()(a)))
    x = L.Conv2D(2, 3, padding="same", activation="relu")(L.Concatenate()([x, a]))
    x = L.Conv2DTranspose(2, 2, strides=2, padding="same")(L.MaxPooling2D()(x))
    return Model(i, L.Conv2D(1, 1, activation="sigmoid")(x))


@model
def lstm():
    return Sequential([Input((7, 3)), L.LSTM(4, return_sequences=True), L.Dropout(0.2), L.LSTM(3), L.Dense(1)])


@model
def gru():
    return Sequential([Input((7, 3)), L.GRU(4), L.Dense(2, activation="softmax")])


@model
def gru_sequences():
    return Sequential([Input((5, 3)), L.GRU(4, return_sequences=True), L.TimeDistributed(L.Dense(2, activation="softmax"))])


@model
def gru_reset_before():
    return Sequential([Input((5, 3)), L.GRU(4, reset_after=False), L.Dense(2)])


@model
def rnn():
    return Sequential([Input((6, 3)), L.SimpleRNN(4, return_sequences=True), L.SimpleRNN(3, activation="relu"), L.Dense(2)])


@model
def both_ways_lstm():
    return Sequential([Input((6, 3)), L.Bidirectional(L.LSTM(3, return_sequences=True)), L.Bidirectional(L.LSTM(2)), L.Dense(2)])


@model
def both_ways_gru():
    return Sequential([Input((6, 3)), L.Bidirectional(L.GRU(3, return_sequences=True)), L.Bidirectional(L.GRU(2)), L.Dense(2)])


@model
def embedding():
    return Sequential([Input((9,), dtype="int32"), L.Embedding(50, 4), L.Conv1D(5, 3, activation="relu"), L.GlobalMaxPooling1D(),
                       L.Dense(2, activation="softmax")])


@model
def time_distributed():
    return Sequential([Input((3, 6, 6, 1)), L.TimeDistributed(L.Conv2D(2, 3, activation="relu")), L.TimeDistributed(L.MaxPooling2D()),
                       L.TimeDistributed(L.Flatten()), L.LSTM(3), L.Dense(2)])


@model
def image_and_table():
    image, table = Input((5, 5, 1), name="image"), Input((4,), name="table")
    x = L.Concatenate()([L.Flatten()(L.Conv2D(3, 3, activation="relu")(image)), table])
    return Model([image, table], L.Dense(2, activation="softmax")(L.Dense(5, activation="tanh")(x)))


@model
def two_outputs():
    x = i = Input((5,))
    x = L.Dense(6, activation="relu")(x)
    return Model(i, [L.Dense(3, activation="softmax", name="policy")(x), L.Dense(1, name="value")(x)])


@model
def dense_of_sequences():
    return Sequential([Input((4, 3)), L.Dense(5, activation="gelu"), L.LayerNormalization(), L.Dense(3), L.Flatten(), L.Dense(2)])


@model
def norms():
    x = i = Input((4, 4, 6))
    x = L.GroupNormalization(3)(x)
    x = L.Flatten()(L.LayerNormalization()(x))
    return Model(i, L.UnitNormalization()(L.LayerNormalization()(L.Dense(4)(x))))


@model
def wave():
    x = i = Input((9, 2))
    x = L.Conv1D(3, 2, padding="causal")(x)
    skips = []
    for dilation in (1, 2):
        tanh, sigmoid = (L.Conv1D(3, 2, padding="causal", dilation_rate=dilation, activation=each)(x) for each in ("tanh", "sigmoid"))
        skips.append(L.Conv1D(3, 1)(L.Multiply()([tanh, sigmoid])))
        x = L.Add()([x, skips[-1]])
    return Model(i, L.Dense(2)(L.ReLU()(L.Add()(skips))))


@model
def squeeze_and_excite():
    x = i = Input((6, 6, 2))
    x = L.Conv2D(4, 3, padding="same", activation="swish")(x)
    s = L.Conv2D(2, 1, activation="swish")(L.GlobalAveragePooling2D(keepdims=True)(x))
    x = L.Multiply()([x, L.Conv2D(4, 1, activation="sigmoid")(s)])
    return Model(i, L.Dense(2)(L.PReLU(alpha_initializer="uniform")(L.LeakyReLU(0.2)(L.GlobalAveragePooling2D()(x)))))


@model
def decoder():
    return Sequential([Input((4, 3)), L.LSTM(3), L.RepeatVector(3), L.LSTM(3, return_sequences=True), L.TimeDistributed(L.Dense(2))])


@model
def joins():
    x = i = Input((4, 3))
    x = L.Dense(4, activation="selu")(L.Permute((2, 1))(x))
    x = L.Average()([x, L.Dense(4, activation="softplus")(x)])
    x = L.Maximum()([x, L.Dense(4)(x)])
    return Model(i, L.Dense(2)(L.Flatten()(L.Subtract()([x, L.Dense(4)(x)]))))


def randomise(net, draw):
    """Biases, scales and averages get numbers that tell them apart."""
    for weight in net.weights:
        value = weight.numpy()
        if any(part in weight.path for part in ("variance", "gamma")):
            weight.assign(draw.uniform(0.5, 1.5, value.shape).astype(np.float32))
        elif any(part in weight.path for part in ("bias", "beta", "moving_mean")):
            weight.assign(draw.normal(0, 0.3, value.shape).astype(np.float32))


def write(name, net):
    draw = np.random.default_rng(1)
    randomise(net, draw)
    codes = net.inputs[0].dtype == "int32"
    samples = [draw.integers(0, 50, (SAMPLES, *x.shape[1:])) if codes else draw.normal(size=(SAMPLES, *x.shape[1:])) for x in net.inputs]
    samples = [each.astype(np.int32 if codes else np.float32) for each in samples]
    given = samples if len(samples) > 1 else samples[0]
    outputs = net(given)
    file = FOLDER / f"{name}.onnx"
    net.export(str(file), format="onnx", verbose=False)
    try:
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_inputs()]
        output = session.run(None, dict(zip(names, samples)))[0]
    except Exception as error:  # the file uses an operator that ONNX does not have
        print(f"{name}: {str(error)[:120]}")
        output = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
    if len(samples) > 1:
        np.savez(FOLDER / f"{name}.x.npz", **dict(zip(names, samples)))
    else:
        np.save(FOLDER / f"{name}.x.npy", samples[0].astype(np.uint8) if codes else samples[0])
    np.save(FOLDER / f"{name}.y.npy", np.asarray(output, dtype=np.float32))


def main():
    for name, function in MODELS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        write(name, function())


main()
