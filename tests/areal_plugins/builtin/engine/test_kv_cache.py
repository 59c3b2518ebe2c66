import torch

from areal_plugins.builtin.engine.kv_cache import KVCache, free_bytes

CPU = torch.device("cpu")


def filled(rows: int, length: int) -> KVCache:
    """One layer of two heads whose keys tell their row and position."""
    cache = KVCache(torch.float32, CPU)
    cache.resize(rows, length)
    where = torch.cartesian_prod(torch.arange(rows), torch.arange(length))
    tokens = where.sum(1)[:, None, None].expand(-1, 2, 3).float()
    cache.write(0, tokens, -tokens, cache.slots(where[:, 0], where[:, 1], 2))
    return cache


def test_a_token_lies_in_its_row_and_position():
    keys, values = filled(3, 4).layers[0]
    assert keys[2, 1, 3].tolist() == [5.0] * 3
    assert values[1, 0, 2].tolist() == [-3.0] * 3


def test_a_copy_takes_the_first_positions_only():
    cache = filled(4, 5)
    cache.copy([3, 3], [0, 1], 2)
    keys = cache.layers[0][0]
    assert keys[0, 0, :, 0].tolist() == [3, 4, 2, 3, 4]
    assert keys[1, 1, :, 0].tolist() == [3, 4, 3, 4, 5]


def test_resizing_keeps_what_fits():
    cache = filled(3, 4)
    cache.resize(5, 3)
    keys = cache.layers[0][0]
    assert keys.shape == (5, 2, 3, 3)
    assert keys[2, 0, :, 0].tolist() == [2, 3, 4]
    assert keys[4].abs().sum() == 0


def test_layers_may_differ_in_shape():
    cache = KVCache(torch.float32, CPU)
    cache.resize(1, 2)
    for layer, (heads, dim) in enumerate([(1, 4), (3, 2)]):
        cache.write(layer, torch.ones(2, heads, dim), torch.ones(2, heads, dim + 1), slots_of(cache, heads))
    assert [k.shape for k, _ in cache.layers.values()] == [(1, 1, 2, 4), (1, 3, 2, 2)]
    assert cache.token_bytes == 4 * (4 + 5 + 6 + 9)
    assert cache.layer_bytes == cache.token_bytes / 2


def slots_of(cache: KVCache, heads: int) -> torch.Tensor:
    return cache.slots(torch.zeros(2, dtype=torch.int64), torch.arange(2), heads)


def test_free_memory_of_this_machine_is_known():
    free = free_bytes(CPU)
    assert free is None or free > 1 << 20
