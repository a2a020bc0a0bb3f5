import copy
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dscca.deep import scaled_product as scaled_product_module
from dscca.deep.layers import MLP, DynamicLinear
from dscca.deep.scaled_product import _ScaledProduct, scaled_product
from dscca.deep.sizes import matched_outputs_width, widened

NETWORKS = ("parameters", "outputs", "hypernetwork")
EVERY = (*NETWORKS, "global", "none")


@pytest.fixture(params=[1, 1 << 30], ids=["chunk-of-one", "one-chunk"])
def chunk_bytes(request, monkeypatch):
    monkeypatch.setitem(scaled_product_module._CHUNK_BYTES, "cpu", request.param)


def literal(layer, z, x):
    """Equations 1 and 2 as the paper writes them: a scaled weight matrix for every sample."""
    theta = dict(layer.named_parameters())
    h = {"z": z, "x": x, "zx": torch.cat([z, x], dim=1)}[layer.context]
    depth = len([name for name in theta if name.startswith("hidden.")])
    for i in range(depth if layer.scaling in NETWORKS else 0):
        a = h @ theta[f"hidden.{3 * i}.weight"].T
        a = (a - a.mean(0)) / (a.var(0, correction=0) + 1e-5).sqrt()
        h = a.clamp(min=0)

    def scale(name):
        if f"scale_{name}.v" not in theta:
            return torch.zeros((), dtype=z.dtype)
        S = theta[f"scale_{name}.v"][None]
        if f"scale_{name}.V" in theta:
            S = S + torch.tensordot(h, theta[f"scale_{name}.V"], dims=1)
        return S

    W = theta.get("weight", torch.ones((), dtype=z.dtype))
    b = theta.get("bias", torch.ones((), dtype=z.dtype))
    if layer.scaling == "none":
        return z @ W.T + theta.get("bias", 0)
    if layer.scaling == "outputs":
        return scale("output") * (z @ W.T + theta.get("bias", 0))
    W_hat = scale("weight") * W
    return (W_hat * z[:, None, :]).sum(2) + scale("bias") * b


def value_and_gradients(function, layer, z, x, weights):
    z, x = z.clone().requires_grad_(), x.clone().requires_grad_()
    inputs = [z, x, *layer.parameters()]
    y = function(z, x)
    return [y, *torch.autograd.grad((y * weights).sum(), inputs, allow_unused=True)]


def random_layer(seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    return DynamicLinear(**options).to(dtype)


@pytest.mark.parametrize("scaling", EVERY)
@settings(max_examples=30, deadline=None)
@given(
    d_in=st.integers(1, 9),
    d_out=st.integers(1, 9),
    d_x=st.integers(1, 9),
    batch=st.integers(2, 9),
    hidden=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    context=st.sampled_from(["z", "x", "zx"]),
    start=st.sampled_from(["one", "default"]),
    bias=st.booleans(),
    chunk=st.sampled_from([1, 500, 1 << 30]),
)
def test_agrees_with_the_literal_equations(
    scaling, d_in, d_out, d_x, batch, hidden, context, start, bias, chunk
):
    layer = random_layer(
        in_features=d_in,
        out_features=d_out,
        scale_hidden=hidden,
        context=context,
        context_features=d_x,
        scaling=scaling,
        bias=bias,
        start=start,
    )
    z, x = torch.randn(batch, d_in).double(), torch.randn(batch, d_x).double()
    weights = torch.randn(batch, d_out).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scaled_product_module._CHUNK_BYTES, "cpu", chunk)
        found = value_and_gradients(layer, layer, z, x, weights)
    expected = value_and_gradients(partial(literal, layer), layer, z, x, weights)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("chunk_bytes")
@pytest.mark.parametrize("d_out", [1, 4])
def test_gradient_of_the_product(d_out):
    shapes = [(5, 3), (5, 6), (6, d_out, 3), (d_out, 3)]
    z, h, V, W = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes)
    assert torch.autograd.gradcheck(lambda *a: _ScaledProduct.apply(*a, True), (z, h, V, W))
    W.requires_grad_(False)
    assert torch.autograd.gradcheck(lambda *a: _ScaledProduct.apply(*a, True), (z, h, V, W))


@pytest.mark.usefixtures("chunk_bytes")
def test_product_is_the_same_without_gradient():
    z, h, V, W = torch.randn(5, 3), torch.randn(5, 6), torch.randn(6, 4, 3), torch.randn(4, 3)
    V.requires_grad_()
    with torch.no_grad():
        y = scaled_product(z, h, V, W)
    torch.testing.assert_close(y, scaled_product(z, h, V, W), rtol=0, atol=0)
    expected = torch.einsum("bi,oi,koi,bk->bo", z, W, V, h)
    torch.testing.assert_close(y, expected.detach())


@pytest.mark.parametrize("scaling", ["parameters", "outputs", "global"])
@pytest.mark.parametrize("bias", [True, False])
def test_scales_of_one_make_a_linear_layer(scaling, bias):
    layer = random_layer(
        in_features=7, out_features=3, scale_hidden=(5,), scaling=scaling, bias=bias
    )
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith(".V"):
                parameter.zero_()
    z = torch.randn(6, 7, dtype=torch.float64)
    torch.testing.assert_close(layer(z), nn.functional.linear(z, layer.weight, layer.bias))


@pytest.mark.parametrize("scaling", NETWORKS)
def test_starts_near_its_conventional_self(scaling):
    layer = random_layer(in_features=40, out_features=6, scale_hidden=(64,), scaling=scaling)
    torch.manual_seed(0)
    conventional = nn.Linear(40, 6).double()
    z = torch.randn(200, 40, dtype=torch.float64)
    y = conventional(z)
    assert (layer(z) - y).abs().max() < 0.02 * y.abs().max()
    assert not torch.equal(layer(z), y)


def test_every_parameter_has_a_gradient_in_the_first_step():
    for scaling in EVERY:
        layer = random_layer(in_features=9, out_features=4, scale_hidden=(8, 8), scaling=scaling)
        layer(torch.randn(30, 9, dtype=torch.float64)).square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad.abs().max() > 1e-9, (scaling, name)


def test_default_start_is_that_of_a_linear_layer():
    layer = random_layer(in_features=30, out_features=20, scale_hidden=(16,), start="default")
    for parameter in layer.scale_weight.parameters():
        assert 0.2 < parameter.abs().max() <= 0.25
        assert abs(parameter.std() - 0.25 / 3**0.5) < 0.01


@pytest.mark.parametrize("scaling", EVERY)
def test_conventional_parameters_and_generator_are_those_of_a_linear_layer(scaling):
    torch.manual_seed(3)
    linear = nn.Linear(7, 4)
    after = torch.rand(3)
    torch.manual_seed(3)
    layer = DynamicLinear(7, 4, scaling=scaling)
    torch.testing.assert_close(torch.rand(3), after, rtol=0, atol=0)
    if scaling == "hypernetwork":
        weight, bias = layer.scale_weight.v, layer.scale_bias.v
    else:
        weight, bias = layer.weight, layer.bias
    assert torch.equal(weight, linear.weight)
    assert torch.equal(bias, linear.bias)


def two_views(last, seed=1):
    torch.manual_seed(seed)
    return nn.ModuleList(MLP(n, (12, 10), 4, last=last(n), dropout=0.2) for n in (6, 8))


@pytest.mark.parametrize("scaling", ["parameters", "outputs", "global"])
def test_warm_up_is_bit_identical_to_a_conventional_model(scaling):
    plain = two_views(lambda n: nn.Linear)
    dynamic = two_views(
        lambda n: partial(DynamicLinear, scaling=scaling, context="zx", context_features=n)
    )
    for view in dynamic:
        view.last.scaled = False
    data = [torch.randn(32, 6), torch.randn(32, 8)]
    results = []
    for model in (plain, dynamic):
        optimiser = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-2)
        torch.manual_seed(7)
        for _ in range(3):
            optimiser.zero_grad()
            first, second = (view(x) for view, x in zip(model, data, strict=True))
            (-(first * second).mean()).backward()
            optimiser.step()
        results.append((first, second))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    for view in dynamic:
        for name, parameter in view.last.named_parameters():
            conventional = name in ("weight", "bias")
            assert (parameter.grad is not None) == conventional, name
        assert not view.last.hidden[1].num_batches_tracked if scaling != "global" else True


def test_views_have_scaling_networks_of_their_own():
    first, second = two_views(lambda n: partial(DynamicLinear, scale_hidden=(5,)))
    assert not torch.equal(first.last.scale_weight.V, second.last.scale_weight.V)


@pytest.mark.parametrize("scaling", [s for s in EVERY if s != "none"])
@pytest.mark.parametrize("block_size", [3, 100])
def test_scales_are_those_in_use(scaling, block_size):
    layer = random_layer(
        in_features=5, out_features=3, scale_hidden=(6,), scaling=scaling, start="default"
    )
    z = torch.randn(10, 5, dtype=torch.float64)
    layer(z)  # moves the running statistics
    S_W, S_b = layer.scales(z, block_size=block_size)
    assert layer.training
    assert S_W.shape == (10, 3, 5)
    expected = torch.einsum("boi,bi->bo", S_W * layer.weight, z) + S_b * layer.bias
    torch.testing.assert_close(layer.eval()(z), expected)


def test_scales_without_bias_or_scaling():
    layer = DynamicLinear(5, 3, bias=False)
    assert layer.scales(torch.randn(4, 5))[1] is None
    with pytest.raises(ValueError, match="no scales"):
        DynamicLinear(5, 3, scaling="none").scales(torch.randn(4, 5))
    with pytest.raises(ValueError, match="block_size must be at least 1"):
        layer.scales(torch.randn(4, 5), block_size=0)


@pytest.mark.parametrize(("scaling", "context"), [*product(EVERY, ["z", "x", "zx"])])
def test_batch_of_one_state_dict_and_deepcopy(scaling, context):
    make = partial(
        DynamicLinear,
        *(6, 4),
        scale_hidden=(5,),
        scaling=scaling,
        context=context,
        context_features=3,
    )
    layer, other = make(), make()
    z, x = torch.randn(8, 6), torch.randn(8, 3)
    y = layer(z, x)
    assert y.dtype == torch.float32
    layer.eval()
    y = layer(z, x)
    torch.testing.assert_close(layer(z[:1], x[:1]), y[:1])
    other.load_state_dict(layer.state_dict())
    for twin in (other.eval(), copy.deepcopy(layer)):
        assert torch.equal(twin(z, x), y)
    assert make(bias=False)(z, x).shape == (8, 4)


@pytest.mark.parametrize("scaling", EVERY)
def test_dead_units_and_constant_input_give_no_nan(scaling):
    layer = DynamicLinear(6, 4, scale_hidden=(5, 5), scaling=scaling)
    for z in (torch.zeros(8, 6), torch.ones(8, 6), -torch.ones(8, 6)):
        z.requires_grad_()
        y = layer(z)
        y.sum().backward()
        assert y.isfinite().all()
        assert z.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("scaling", EVERY)
def test_autocast_lowers_only_the_products(scaling):
    layer = DynamicLinear(64, 8, scale_hidden=(32,), scaling=scaling, start="default")
    z = torch.randn(50, 64)
    expected = layer(z)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(z)
    y.float().square().sum().backward()
    scale = expected.abs().max()
    assert (y - expected).abs().max() < 0.03 * scale
    assert all(p.grad.dtype == torch.float32 for p in layer.parameters())
    if scaling in ("parameters", "hypernetwork"):
        assert y.dtype == torch.float32


def test_encoder_has_the_paper_s_layers():
    encoder = MLP(6, (12, 10), 4)
    kinds = [type(m) for m in encoder.modules() if not list(m.children())]
    block = [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    assert kinds == [*block, *block, nn.Linear, nn.BatchNorm1d]
    norms = [m for m in encoder.modules() if isinstance(m, nn.BatchNorm1d)]
    assert not any(norm.affine for norm in norms)
    y = encoder(torch.randn(100, 6))
    torch.testing.assert_close(y.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(0), torch.ones(4), atol=0.02, rtol=0)
    free = MLP(6, (), 4, output_norm=False)
    x = torch.randn(3, 6)
    assert torch.equal(free(x), free.last(x))


def test_encoder_hands_x_to_the_scaling_network():
    last = partial(DynamicLinear, context="x", context_features=6, start="default")
    encoder = MLP(6, (12,), 4, last=last, output_norm=False).eval()
    x = torch.randn(5, 6)
    assert torch.equal(encoder(x), encoder.last(encoder.body(x), x))


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@settings(deadline=None)
@given(
    d_in=st.integers(1, 40),
    d_out=st.integers(1, 20),
    hidden=st.lists(st.integers(1, 20), min_size=1, max_size=2),
)
def test_matched_width_of_the_outputs_ablation(d_in, d_out, hidden):
    target = parameters(DynamicLinear(d_in, d_out, scale_hidden=hidden))

    def error(width):
        layer = DynamicLinear(d_in, d_out, scale_hidden=(width,), scaling="outputs")
        return abs(parameters(layer) - target)

    width = matched_outputs_width(d_in, d_out, hidden)
    assert error(width) <= error(width + 1)
    assert width == 1 or error(width) <= error(width - 1)


@pytest.mark.parametrize("layers", [(1,), (0, 1)])
def test_widened_encoder_has_the_size_of_a_dynamic_one(layers):
    target = parameters(MLP(392, (800, 800), 50, last=partial(DynamicLinear, scale_hidden=(128,))))
    hidden = widened(392, (800, 800), 50, target, layers)
    size = parameters(MLP(392, hidden, 50))
    assert abs(size - target) < 0.001 * target
    assert [i for i in range(2) if hidden[i] != 800] == list(layers)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DynamicLinear(0, 3), "must be at least 1"),
        (lambda: DynamicLinear(3, 3, scale_hidden=()), "scale_hidden must be at least 1"),
        (lambda: DynamicLinear(3, 3, scaling="weights"), "scaling must be one of parameters"),
        (lambda: DynamicLinear(3, 3, context="y"), "context must be one of z"),
        (lambda: DynamicLinear(3, 3, start="zero"), "start must be one of one, default"),
        (lambda: DynamicLinear(3, 3, context="zx"), "give context_features"),
        (lambda: DynamicLinear(3, 3)(torch.ones(2, 4)), r"batch x 3, got shape \(2, 4\)"),
        (
            lambda: DynamicLinear(3, 3, context="x", context_features=2)(torch.ones(2, 3)),
            "no x was given",
        ),
        (lambda: MLP(3, (0,), 2), "must be at least 1"),
        (lambda: widened(3, (4, 4), 2, 5), "target must be at least the 38 parameters"),
        (lambda: widened(3, (4, 4), 2, 99, (2,)), "layers must hold numbers from 0 to 1"),
    ],
)
def test_impossible_requests_say_so(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_hypernetwork_cannot_be_switched_off():
    layer = DynamicLinear(3, 3, scaling="hypernetwork")
    with pytest.raises(ValueError, match="no conventional parameters"):
        layer.scaled = False
    assert layer.scaled


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lowered", [False, True])
def test_a_step_can_be_captured_as_a_cuda_graph(lowered):
    layer = DynamicLinear(64, 16, scale_hidden=(32,), start="default").cuda()
    twin, z = copy.deepcopy(layer), torch.randn(40, 64, device="cuda")

    def step(layer):
        layer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=lowered):
            y = layer(z)
        y.float().square().sum().backward()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(layer)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(layer)
    graph.replay()
    step(twin)
    for a, b in zip(layer.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)
