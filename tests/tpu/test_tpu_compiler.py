"""The TPU's compiler, and what follows from its figures."""

import sys

import pytest
import tensorflow as tf

from bert_tf.tpu import compiler as tpu_compiler
from bert_tf.tpu.batch_size import find_largest_batch, try_compile
from bert_tf.tpu.chips import CHIPS, Topology, estimate_step_time
from bert_tf.tpu.compiler import CompiledStep, DoesNotFit, TpuCompiler, step_to_hlo

GIB = 2**30


def compiled(temporaries: int, arguments: int = 0) -> CompiledStep:
    return CompiledStep(
        seconds=1.0,
        arguments=arguments,
        outputs=arguments,
        aliased=arguments,
        temporaries=temporaries,
        code=0,
        flops=0.0,
        bytes_accessed=0.0,
    )


class TestTopology:
    @pytest.mark.parametrize(
        "name, chips, replicas, links",
        [("v5e:1x1", 1, 1, 0), ("v5e:2x2", 4, 4, 2), ("v4:2x2x1", 4, 4, 2), ("v3:4x8", 32, 64, 2)],
    )
    def test_counts_chips_and_replicas(self, name, chips, replicas, links):
        """Oracle: Cloud TPU's names; TensorFlow has two replicas per chip on v3, else one."""
        topology = Topology.parse(name)
        assert (topology.num_chips, topology.num_replicas, topology.links) == (
            chips,
            replicas,
            links,
        )

    @pytest.mark.parametrize(
        "name", ["v9:2x2", "v5e", "v5e:4", "v5e:0x2", "v5litepod-4", "v5e:2x2 "]
    )
    def test_other_names_are_errors(self, name):
        """Oracle: the message names the value and the alternatives."""
        with pytest.raises(ValueError, match=f"unknown topology '{name}'.*v5e, v5p, v6e.*v5e:2x2"):
            Topology.parse(name)


class TestStepTime:
    def test_on_one_chip_nothing_is_summed(self):
        """Oracle: the chip's 197 TFLOP/s and 819 GB/s."""
        time = estimate_step_time(Topology.parse("v5e:1x1"), 197e12, 2 * 819e9, 4e9)
        assert (time.compute, time.memory, time.all_reduce) == (1.0, 2.0, 0.0)
        assert time.total == 2.0

    def test_the_all_reduce_sends_the_gradient_twice(self):
        """Oracle: by hand, 3/2 of 4 GB over two links of 50 GB/s."""
        time = estimate_step_time(Topology.parse("v5e:2x2"), 197e12, 0.0, 4e9)
        assert time.all_reduce == pytest.approx(6 / 100)
        assert time.total == pytest.approx(1.06)

    def test_a_replica_of_an_old_chip_is_half_of_it(self):
        """Oracle: the peak of the chip, which takes both of its cores."""
        time = estimate_step_time(Topology.parse("v3:1x1"), CHIPS["v3"].peak_flops / 2, 0.0, 0.0)
        assert time.compute == 1.0


class TestLargestBatch:
    """Oracle of all: a fake step whose memory is known in advance."""

    MEMORY = 1000.0

    def search(self, size, temporaries_of, arguments=100):
        self.sizes = []

        def compile_for(size):
            self.sizes.append(size)
            needed = temporaries_of(size)
            if arguments + needed > 980:
                raise DoesNotFit(needed, 980)
            return compiled(needed, arguments)

        first = try_compile(compile_for, size)
        return find_largest_batch(compile_for, size, first, self.MEMORY)

    def test_linear_memory_takes_three_compiles(self):
        found = self.search(8, lambda size: 5 * size)
        assert found.size == 176  # (980 - 100) / 5
        assert found.step.memory == 980
        assert found.bytes_per_sequence == 5.0
        assert len(self.sizes) == 3

    def test_recovers_from_sizes_that_do_not_fit(self):
        """The temporaries of small batches fit into fast memory: the first estimate is too high."""
        found = self.search(8, lambda size: max(1, 5 * size - 100))
        assert found.size == 192  # (880 + 100) / 5 = 196
        assert max(self.sizes) > 196

    def test_continues_if_the_estimate_was_too_low(self):
        found = self.search(64, lambda size: 5 * size - (size > 100) * 3 * (size - 100))
        assert 264 <= found.size <= 290  # 2 * 290 + 300 = 880, and 5 % less

    def test_the_compiler_may_need_less_for_more(self):
        """It may recompute values when memory gets tight."""
        found = self.search(8, lambda size: 5 * size - (size > 150) * 200)
        assert 200 <= found.size <= 216  # 5 * 216 - 200 = 880, and 5 % less
        assert max(self.sizes) < 400

    def test_steps_without_temporaries_do_not_lead_to_huge_batches(self):
        self.search(8, lambda size: 0)
        assert max(self.sizes) <= 65 * 8

    def test_starts_from_a_batch_that_does_not_fit(self):
        assert self.search(4096, lambda size: 5 * size).size == 176

    def test_finds_small_batches_exactly(self):
        assert self.search(1, lambda size: 290 * size).size == 3

    def test_may_find_nothing(self):
        found = self.search(8, lambda size: 2000)
        assert (found.size, found.step) == (0, None)


class TestStepToHlo:
    """Oracle: TensorFlow's own error, in one line that names the operation."""

    def test_an_operation_without_a_kernel(self):
        def step(batch):
            with tf.name_scope("text"):
                return tf.strings.length(tf.strings.as_string(batch["x"], name="write"))

        with pytest.raises(ValueError) as error:
            step_to_hlo(step, {"x": tf.zeros([4])})
        assert "\n" not in str(error.value)
        assert str(error.value).startswith("a TPU cannot run the operation AsString (text/write), ")

    def test_a_string_among_the_arguments(self):
        with pytest.raises(ValueError, match=r"^a TPU cannot run the operation _Arg on strings"):
            step_to_hlo(lambda batch: tf.strings.length(batch["x"]), {"x": tf.constant(["a"])})


def test_random_numbers_and_copies_become_those_of_a_tpu():
    """Oracle: the TPU build of TensorFlow 2.20, which uses rng_default with a two-word state."""
    module = (
        "%output_state_3, %output_4 = stablehlo.rng_bit_generator %200, algorithm = PHILOX : "
        "(tensor<3xui64>) -> (tensor<3xui64>, tensor<8x128xui32>) loc(#loc8)\n"
        "%5 = mhlo.copy %4 : tensor<8xf32>"
    )
    assert tpu_compiler.adapt_to_tpu(module).splitlines() == [
        "%output_4_tpu_seed = stablehlo.slice %200 [0:2] : (tensor<3xui64>) -> tensor<2xui64>",
        "%output_4_tpu_rest = stablehlo.slice %200 [2:3] : (tensor<3xui64>) -> tensor<1xui64>",
        "%output_4_tpu_state, %output_4 = stablehlo.rng_bit_generator %output_4_tpu_seed, "
        "algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<8x128xui32>)",
        "%output_state_3 = stablehlo.concatenate %output_4_tpu_state, %output_4_tpu_rest, dim = 0 "
        ": (tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64> loc(#loc8)",
        "%5 = stablehlo.optimization_barrier %4 : tensor<8xf32>",
    ]


class TestCompilerErrors:
    def test_a_missing_package_names_the_extra(self, monkeypatch):
        """Oracle: the name of the extra in setup.cfg."""
        monkeypatch.setitem(sys.modules, "libtpu", None)
        with pytest.raises(ValueError, match=r"pip install 'jax>=0.10.2' 'libtpu>=0.0.52'"):
            TpuCompiler(Topology.parse("v5e:1x1"))

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
        ],
    )
    def test_running_out_of_memory_names_the_sizes(self, message, needed):
        """Oracle: messages of libtpu 0.0.52 and of older versions."""
        error = tpu_compiler._user_error(RuntimeError(message))
        assert isinstance(error, DoesNotFit)
        assert (error.needed, error.available) == (int(needed * GIB), int(15.75 * GIB))

    def test_others_are_one_line(self):
        """Oracle: a message of libtpu 0.0.52."""
        message = "UNIMPLEMENTED: Stable sorting of more than 2^31-1 elements\nSee elsewhere"
        assert str(tpu_compiler._user_error(RuntimeError(message))) == (
            "the TPU compiler rejects the step: UNIMPLEMENTED: Stable sorting of more than 2^31-1 "
            "elements"
        )


@pytest.fixture(scope="module")
def compiler():
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason="needs the extra tpu-check")
    return TpuCompiler(Topology.parse("v5e:1x1"))


class TestCompiler:
    """The real compiler."""

    def test_counts_arithmetic_and_memory(self, compiler):
        """Oracle: 2 m k n operations for a matrix product, and the sizes of its matrices."""
        table = tf.Variable(tf.zeros([1024, 512]))

        def step(batch):
            table.assign_add(tf.ones_like(table))
            return batch["x"] @ table

        found = compiler.compile(step, {"x": tf.zeros([256, 1024])})
        assert found.flops == pytest.approx(2 * 256 * 1024 * 512, rel=0.02)
        matrix = 4 * 1024 * 512
        assert found.arguments == pytest.approx(4 * 256 * 1024 + matrix, rel=0.02)
        assert found.outputs == pytest.approx(4 * 256 * 512 + matrix, rel=0.02)
        assert found.aliased == pytest.approx(matrix, rel=0.02)
        assert found.float64_op is None

    def test_too_large_does_not_fit(self, compiler):
        """Oracle: 40 GiB exceed the 16 GiB of a v5e."""

        def step(batch):
            return tf.random.stateless_uniform([10 * 2**30], batch["seed"])

        with pytest.raises(DoesNotFit) as error:
            compiler.compile(step, {"seed": tf.constant([1, 2])})
        assert error.value.needed > error.value.available
        assert 15 * GIB < error.value.available <= 16 * GIB

    def test_random_numbers_need_no_temporaries(self, compiler):
        """Oracle: the size of the numbers; Philox would need temporaries of 32 times that."""

        def step(batch):
            return tf.random.stateless_uniform([4096, 3072], batch["seed"], 0, 2**16, tf.int32)

        found = compiler.compile(step, {"seed": tf.constant([1, 2])})
        assert found.outputs == pytest.approx(4 * 4096 * 3072, rel=0.01)
        assert found.temporaries < found.outputs

    def test_names_an_operation_in_float64(self, compiler):
        """Oracle: the name of the operation."""

        def step(batch):
            return tf.cast(batch["x"], tf.float64, name="precise") + 1.0

        assert "precise" in compiler.compile(step, {"x": tf.zeros([8, 8])}).float64_op

    def test_a_slice_that_does_not_exist(self, compiler):
        """Oracle: v5e slices consist of hosts with 2x2 chips."""
        with pytest.raises(ValueError, match=r"no topology 'v5e:3x3': .*not divisible"):
            TpuCompiler(Topology.parse("v5e:3x3"))

    @pytest.mark.parametrize("name", ["v2:2x2", "v3:2x2", "v4:2x2x1", "v5p:2x2x1", "v6e:2x2"])
    def test_every_chip_has_the_replicas_of_the_table(self, compiler, name):
        """Oracle: the devices of the compiler, which its constructor counts."""
        TpuCompiler(Topology.parse(name))
