"""Calls the signatures of SavedModels with inputs of other shapes, and prints which are answered.

Python's signatures and TensorFlow's session, which servers use, compare no shapes.
"""

import json
import sys

import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from export.checks.calls import other_shapes


def in_python(folder):
    for name, signature in tf.saved_model.load(folder).signatures.items():
        specs = tf.nest.flatten(signature.structured_input_signature)
        yield name, specs, lambda inputs, call=signature: call(**inputs)


def in_session(folder):
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def
    for name in signatures.keys() - {"__saved_model_init_op"}:
        places, outputs = signatures[name].inputs, signatures[name].outputs
        specs = [tf.TensorSpec(x.tensor_shape, x.dtype, name) for name, x in places.items()]
        options = CallableOptions(
            feed=[places[spec.name].name for spec in specs],
            fetch=[x.name for x in outputs.values()],
        )
        call = session._make_callable_from_options(options)
        yield name, specs, lambda inputs, call=call: call(*(x.numpy() for x in inputs.values()))


for folder in sys.argv[1:]:
    for signatures in (in_python, in_session):
        for name, specs, call in signatures(folder):
            for inputs in other_shapes(specs):
                shapes = {name: x.shape.as_list() for name, x in inputs.items()}
                ranks = {spec.name: spec.shape.rank for spec in specs}
                print(json.dumps([signatures.__name__, name, ranks, shapes]), end="\t", flush=True)
                try:
                    call(inputs)
                except tf.errors.OpError:
                    print("false")
                else:
                    print("true")
