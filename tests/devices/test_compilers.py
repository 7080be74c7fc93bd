"""The compilers of TPUs and GPUs, and what follows from their figures."""

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.devices import compiler
from bert_tf.devices.checking import find_largest_batch
from bert_tf.devices.topology import Topology, estimate_step_time
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.training.chips import GPUS

GIB = 2**30


@pytest.mark.parametrize(
    "name, chips, replicas",
    [
        ("v5e:1x1", 1, 1),
        ("v5e:2x2", 4, 4),
        ("v4:2x2x1", 4, 4),
        ("v3:4x8", 32, 64),
        ("l4", 1, 1),
        ("a100:8", 8, 8),
    ],
)
def test_a_topology_counts_chips_and_replicas(name, chips, replicas):
    """Oracle: Cloud TPU's names; TensorFlow has two replicas per chip on v3, else one."""
    found = Topology.parse(name)
    assert (found.num_chips, found.num_replicas) == (chips, replicas)


@pytest.mark.parametrize(
    "name",
    ["v9:2x2", "v5e", "v5e:4", "v5e:0x2", "v5litepod-4", "v5e:2x2 ", "a100:0", "a100:2x2", "A100"],
)
def test_other_names_of_topologies_are_errors(name):
    """Oracle: the message names the value and the alternatives."""
    with pytest.raises(ValueError, match=f"unknown device '{name}'.*a100.*v5e, v5p, v6e.*v5e:2x2"):
        Topology.parse(name)


def test_products_in_libraries_are_counted():
    """Oracle: 2 m n k, for products of attention that XLA writes so for a T4."""
    line = (
        '%a = {} custom-call(%b, %c), custom_call_target="__cublas$lt$matmul", backend_config='
        '{{"gemm_backend_config":{{"dot_dimension_numbers":{{"lhs_batch_dimensions":[{}],'
        '"rhs_batch_dimensions":[{}]}},"lhs_stride":"{}","rhs_stride":"{}"}}}}'
    )
    module = [
        line.format("(f16[4096,384]{1,0}, s8[4194304]{0})", "", "", 4096 * 128, 128 * 384),
        line.format("f16[2,32,128,64]{3,2,1,0}", '"0","1"', '"0","1"', 128 * 16, 16 * 64),
        "%d = f16[4096,384]{1,0} get-tuple-element(%a), index=0",
    ]
    flops = 2 * 4096 * 384 * 128 + 2 * 64 * 128 * 64 * 16
    assert compiler.library_flops("\n".join(module)) == flops


@pytest.mark.parametrize(
    ("name", "work", "seconds", "total"),
    [
        # 197 TFLOP/s and 819 GB/s; on one chip, nothing is summed.
        ("v5e:1x1", (197e12, 2 * 819e9, 4e9), (1.0, 2.0, 0.0), 2.0),
        # 3/2 of the gradient of 4 GB over two links of 50 GB/s.
        ("v5e:2x2", (197e12, 0.0, 4e9), (1.0, 0.0, 0.06), 1.06),
        # A replica of an old chip is half of it.
        ("v3:1x1", (123e12 / 2, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0),
        # 7/4 of the gradient at half of NVLink's 900 GB/s.
        ("h100:8", (989e12, 3352e9, 4.5e9), (1.0, 1.0, 0.0175), 1.0175),
    ],
)
def test_the_time_of_a_step(name, work, seconds, total):
    """Oracle: by hand, from the published figures of the chips."""
    topology = Topology.parse(name)
    found = estimate_step_time(topology, topology.peak_flops("bfloat16"), *work)
    assert found == pytest.approx((*seconds, total))


@pytest.mark.parametrize(
    ("size", "temporaries_of", "smallest", "largest", "tried"),
    [
        # (980 - 100) / 5
        (8, lambda size: 5 * size, 176, 176, range(8, 300)),
        # The temporaries of small batches fit into fast memory: the first estimate is above the
        # (880 + 100) / 5 = 196 that would fill the memory.
        (8, lambda size: max(1, 5 * size - 100), 192, 192, range(197, 600)),
        # The first estimate is too low: 2 * 290 + 300 = 880, and 5 % less.
        (64, lambda size: 5 * size - (size > 100) * 3 * (size - 100), 264, 290, range(600)),
        # The compiler may recompute values when memory gets tight: 5 * 216 - 200 = 880.
        (8, lambda size: 5 * size - (size > 150) * 200, 200, 216, range(400)),
        # Without temporaries, the batch is still not huge.
        (8, lambda size: 0, 8, 65 * 8, range(65 * 8 + 1)),
        (4096, lambda size: 5 * size, 176, 176, range(4097)),
        (1, lambda size: 290 * size, 3, 3, range(9)),
        (8, lambda size: 2000, 0, 0, range(9)),
    ],
)
def test_the_largest_batch(size, temporaries_of, smallest, largest, tried):
    """Oracle: a fake step whose memory is known in advance, 100 and what grows, of 980."""
    sizes = []

    def compile_for(size):
        sizes.append(size)
        needed = temporaries_of(size)
        if needed > 880:
            return compiler.DoesNotFit(needed, 980)
        return compiler.CompiledStep(1.0, 100, 100, 100, needed, 0, 0.0, 0.0)

    found, step = find_largest_batch(compile_for, size, compile_for(size), 1000.0)
    assert smallest <= found <= largest and max(sizes) in tried
    assert (step is None) == (found == 0)
    if size == 8 and largest == 176:
        assert (step.memory, len(sizes)) == (980, 3)


def test_random_numbers_become_those_of_a_tpu():
    """Oracle: the TPU build of TensorFlow 2.20, which uses rng_default with a two-word state."""
    module = (
        "%output_state_3, %output_4 = stablehlo.rng_bit_generator %200, algorithm = PHILOX : "
        "(tensor<3xui64>) -> (tensor<3xui64>, tensor<8x128xui32>) loc(#loc8)\n"
        "%5 = stablehlo.add %4, %4 : tensor<8xf32>"
    )
    assert compiler.TpuTarget.adapt(None, module).splitlines() == [
        "%output_4_tpu_seed = stablehlo.slice %200 [0:2] : (tensor<3xui64>) -> tensor<2xui64>",
        "%output_4_tpu_rest = stablehlo.slice %200 [2:3] : (tensor<3xui64>) -> tensor<1xui64>",
        "%output_4_tpu_state, %output_4 = stablehlo.rng_bit_generator %output_4_tpu_seed, "
        "algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<8x128xui32>)",
        "%output_state_3 = stablehlo.concatenate %output_4_tpu_state, %output_4_tpu_rest, dim = 0 "
        ": (tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64> loc(#loc8)",
        "%5 = stablehlo.add %4, %4 : tensor<8xf32>",
    ]


@pytest.mark.parametrize(
    "message, needed",
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total "
            "memory required for HLO temporaries (408.00G) exceeds available HBM (15.75G). HLO "
            "module: a_inference_f_57__.5.\nSee https://openxla.org/xla/errors/error_1000",
            408.0,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 20.25G of 15.75G hbm. Exceeded hbm capacity by 4.50G.",
            20.25,
        ),
        ("UNIMPLEMENTED: Stable sorting of more than 2^31-1 elements\nSee elsewhere", None),
    ],
)
def test_errors_of_the_compiler(message, needed):
    """Oracle: the sizes in messages of libtpu 0.0.52 and of older versions."""
    error = compiler.TpuTarget.does_not_fit(None, RuntimeError(message))
    if needed:
        assert (error.needed, error.available) == (int(needed * GIB), int(15.75 * GIB))
    else:
        assert error is None


@pytest.fixture(scope="module")
def tpu() -> compiler.TpuTarget:
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason="needs the extra tpu-check")
    return compiler.TpuTarget(Topology.parse("v5e:1x1"))


@pytest.fixture(scope="module")
def gpu() -> compiler.GpuTarget:
    for package in ("jax", "jax_plugins.xla_cuda12"):
        pytest.importorskip(package, reason="needs the extra gpu-check")
    return compiler.GpuTarget(Topology.parse("l4"))


@pytest.mark.parametrize("name", ["tpu", "gpu"])
def test_the_compiler_counts_arithmetic_and_memory(request, name):
    """Oracle: 2 m k n operations for a matrix product, and the sizes of its matrices."""
    target = request.getfixturevalue(name)
    table = tf.Variable(tf.zeros([1024, 512]))

    def step(batch):
        table.assign_add(tf.ones_like(table))
        return batch["x"] @ table

    found = compiler.compile_step(target, step, {"x": tf.zeros([256, 1024])})
    assert found.flops == pytest.approx(2 * 256 * 1024 * 512, rel=0.02)
    matrix = 4 * 1024 * 512
    assert found.arguments == pytest.approx(4 * 256 * 1024 + matrix, rel=0.02)
    assert found.outputs == pytest.approx(4 * 256 * 512 + matrix, rel=0.02)
    assert found.aliased == pytest.approx(matrix, rel=0.02)
    assert found.kernels is None if name == "tpu" else 1 <= found.kernels <= 4


@pytest.mark.parametrize(("name", "size"), [("tpu", 16 * GIB), ("gpu", GPUS["l4"].memory)])
def test_the_compiler_says_what_does_not_fit(request, name, size):
    """Oracle: 40 GiB exceed the memory."""
    with pytest.raises(compiler.DoesNotFit) as error:
        compiler.compile_step(
            request.getfixturevalue(name),
            lambda batch: tf.random.stateless_uniform([10 * 2**30], batch["seed"]),
            {"seed": tf.constant([1, 2])},
        )
    assert error.value.needed > error.value.available
    assert 0.95 * size < error.value.available <= size


def test_random_numbers_need_no_temporaries(tpu):
    """Oracle: the size of the numbers; Philox would need temporaries of 32 times that."""

    def step(batch):
        return tf.random.stateless_uniform([4096, 3072], batch["seed"], 0, 2**16, tf.int32)

    found = compiler.compile_step(tpu, step, {"seed": tf.constant([1, 2])})
    assert found.outputs == pytest.approx(4 * 4096 * 3072, rel=0.01)
    assert found.temporaries < found.outputs


def test_recomputed_layers_are_not_merged_with_the_first_computation(tpu):
    """Oracle: a third more arithmetic than in the step that keeps everything."""
    no_dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config = BertConfig(50, 128, 1, 2, 512, max_position_embeddings=128, **no_dropout)

    def flops(kind: str) -> float:
        model = BertEncoder(config, kind)

        def step(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(model(batch, training=True)["sequence_output"]))
            return tape.gradient(loss, [weight.value for weight in model.blocks[0].weights])

        batch = dict.fromkeys(
            ("input_word_ids", "input_mask", "input_type_ids"), tf.ones([8, 128], tf.int32)
        )
        return compiler.compile_step(tpu, step, batch).flops

    assert flops("layers") == pytest.approx(4 / 3 * flops("none"), rel=0.05)


def test_a_slice_that_does_not_exist(tpu):
    """Oracle: v5e slices consist of hosts with 2x2 chips."""
    with pytest.raises(ValueError, match=r"no topology 'v5e:3x3': .*not divisible"):
        compiler.TpuTarget(Topology.parse("v5e:3x3"))


@pytest.mark.parametrize("name", ["v2:2x2", "v3:2x2", "v4:2x2x1", "v5p:2x2x1", "v6e:2x2"])
def test_every_chip_has_the_replicas_of_the_table(tpu, name):
    """Oracle: the devices of the compiler, which its constructor counts."""
    compiler.TpuTarget(Topology.parse(name))


@pytest.mark.parametrize("name", GPUS)
def test_the_compiler_knows_every_gpu(gpu, name):
    """Oracle: the description of a device of jax."""
    assert compiler.GpuTarget(Topology.parse(name)).device.device_kind == name
