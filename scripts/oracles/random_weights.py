"""The weights of random models, bit for bit those of plait/models/random_weights.h."""
import numpy as np

MASK = (1 << 64) - 1


def mix64(x):
    """splitmix64's finaliser over arrays of uint64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def stream_of(name):
    """FNV-1a."""
    h = 1469598103934665603
    for byte in name.encode():
        h = ((h ^ byte) * 1099511628211) & MASK
    return h


def uniform(stream, index):
    key = mix64(np.array([stream & MASK], dtype=np.uint64))
    return (mix64(key ^ index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(stream, index):
    s = np.zeros(index.shape)
    for k in range(12):
        s = s + uniform(stream + 77 * k, index)
    return s - 6


def random_weight(state, shape):
    """f32 of the state's dims [out..., in...]: 0.15 normal, around 1 for the gains of norms."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    w = 0.15 * normal(stream_of(state), index)
    if state.endswith("norm"):
        w = 1 + w
    return w.astype(np.float32).reshape(shape)
