"""The base class of layers."""

import keras

from bert_tf.layers.initializers import truncated_normal


class Layer(keras.layers.Layer):
    """A layer that Keras saves as the arguments of its constructor, which are plain values.

    Attributes:
        initializer_range: the standard deviation of the truncated normal initializer.
    """

    initializer_range = 0.02

    def __new__(cls, *args, **kwargs):
        # Keras saves the dtype, which may be an object, itself.
        kwargs.pop("dtype", None)
        return super().__new__(cls, *args, **kwargs)

    def add_table(self, name: str, rows: int, width: int):
        """Adds a table of embeddings [rows, width], truncated normal."""
        return self.add_weight(
            name=name,
            shape=(rows, width),
            initializer=truncated_normal(self.initializer_range),
            # Rows are cast after the lookup: casting the whole table would cost more than the
            # lookup, and make its gradient dense and less precise.
            autocast=False,
        )

    def add_dense(self, name: str, width: int, outputs: int):
        """Adds the weights of a dense layer.

        Returns:
            `<name>_kernel` [width, outputs], truncated normal, and `<name>_bias` [outputs], zeros.
        """
        kernel = self.add_weight(
            name=f"{name}_kernel",
            shape=(width, outputs),
            initializer=truncated_normal(self.initializer_range),
        )
        return kernel, self.add_weight(name=f"{name}_bias", shape=(outputs,), initializer="zeros")
