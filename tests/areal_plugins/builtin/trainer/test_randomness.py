import torch

from areal_plugins.builtin.trainer.randomness import RandomStream

CPU = torch.device("cpu")


def draw(stream):
    with stream.active():
        return torch.rand(3)


def test_the_stream_is_its_own():
    quiet, disturbed = RandomStream(CPU, 5), RandomStream(CPU, 5)
    first = [draw(quiet), draw(quiet)]
    second = [draw(disturbed)]
    torch.rand(7)
    second.append(draw(disturbed))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])


def test_others_do_not_notice_it():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    draw(RandomStream(CPU, 5))
    assert torch.equal(torch.rand(2), expected)


def test_its_states_bring_it_back():
    stream = RandomStream(CPU, 5)
    states = stream.states
    expected = draw(stream)
    stream.states = states
    assert torch.equal(draw(stream), expected)
