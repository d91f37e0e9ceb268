"""Gates of the gated delta net    g = -exp(A_log) softplus(a + dt_bias),   beta = sigmoid(b)

g <= 0 is the logarithm of the decay, beta the share of a value that is written; f32 from a, b bf16 and A_log, dt_bias f32, by
value head and token. The kernels that need them compute them: there is no launch for them alone.
"""

from vtlite.cuda.kernel import device
from vtlite.cuda.lang import bf16_to_f32, mul
from vtlite.elementary import exp, sigmoid, softplus


@device
def log_decay(a, A_log, dt_bias):
    """g of a bf16 pattern and two f32."""
    return mul(-exp(A_log), softplus(bf16_to_f32(a) + dt_bias))


@device
def share(b):
    """beta of a bf16 pattern."""
    return sigmoid(bf16_to_f32(b))
