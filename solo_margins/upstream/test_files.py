"""Tests of exported losses and methods, in the manner of solo-learn's own."""

from __future__ import annotations

import ast

from solo_margins.upstream.checkout import Checkout, UpstreamError
from solo_margins.upstream.layout import loss_functions, place_of, tree_of
from solo_margins.upstream.python_text import Edits, find_definition, import_block
from solo_margins.upstream.recipe_files import own_settings

INPUTS = {
    "query": "torch.randn(b, f).requires_grad_()",
    "key": "torch.randn(b, f)",
    "p": "torch.randn(b, f).requires_grad_()",
    "nn": "torch.randn(b, f)",
    "z": "torch.randn(b, f).requires_grad_()",
    "indexes": "torch.arange(b // 2).repeat(2)",
    "queue": "F.normalize(torch.randn(f, 64), dim=0)",
    "prototypes": "torch.randn(10, f)",
    "assignments": "torch.arange(b) % 10",
    "lower": "0.3",
    "upper": "0.6",
}
"""What a test gives to a parameter of a loss, by its name."""

DESCENT = """def test_{name}_loss():
    b, f = 32, 128
{inputs}
    loss = {call}
    initial_loss = loss.item()
    assert loss != 0

    for _ in range(20):
        loss = {call}
        loss.backward()
        {trained}.data.add_(-0.5 * {trained}.grad)

        {trained}.grad = None

    assert loss < initial_loss
"""

LIKE_PARENT = """def test_{name}_loss_without_margins():
    b, f = 32, 128
{inputs}
    # without margins, value and gradient are those of the loss without them
    inputs = ({units})
    expected = {parent}(*inputs{settings})
    (expected_grad,) = torch.autograd.grad(expected, {trained}, retain_graph=True)

    loss = {function}(*inputs{settings})
    (grad,) = torch.autograd.grad(loss, {trained})

    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-3, atol=1e-5)
"""

METHOD = """def _gen_cfg(name):
    cfg = gen_base_cfg(name, {base})
    cfg.method_kwargs = {{
{kwargs}    }}
    cfg.data.dataset = "cifar10"
    cfg.data.num_classes = 10
    return cfg


def _fit(model, cfg):
    seed_everything(0)
    trainer = gen_trainer(cfg)
    train_dl, val_dl = prepare_dummy_dataloaders(
        "cifar10",
        num_large_crops=cfg.data.num_large_crops,
        num_small_crops=0,
        num_classes=cfg.data.num_classes,
        batch_size=cfg.optimizer.batch_size,
    )
    trainer.fit(model, train_dl, val_dl)
    return model.state_dict()


def test_{name}():
    cfg = _gen_cfg("{name}")
    cfg.method_kwargs.margins = {{
        "angular": 0.1,
        "subtractive": 0.2,
        "positive_scale": 2.0,
        "curvature": 1.0,
    }}
    model = {cls}(cfg)

    # test arguments
    model.add_and_assert_specific_cfg(cfg)

    # test parameters
    assert model.learnable_params is not None

    # test forward
    batch, _ = gen_batch(cfg.optimizer.batch_size, cfg.data.num_classes, "cifar10")
    out = model(batch[1][0])
    assert (
        "logits" in out
        and isinstance(out["logits"], torch.Tensor)
        and out["logits"].size() == (cfg.optimizer.batch_size, cfg.data.num_classes)
    )
    assert (
        "feats" in out
        and isinstance(out["feats"], torch.Tensor)
        and out["feats"].size() == (cfg.optimizer.batch_size, model.features_dim)
    )

    # test training
    initial = {{name: value.clone() for name, value in model.state_dict().items()}}
    trained = _fit(model, cfg)
    changed = [name for name in initial if not torch.equal(initial[name], trained[name])]
    assert any(name.startswith("backbone.") for name in changed)


def test_{name}_without_margins():
    # without margins, a training step is that of {parent_cls}
    parent_cfg = _gen_cfg("{parent}")
    parent = {parent_cls}(parent_cfg)
    cfg = _gen_cfg("{name}")
    model = {cls}(cfg)
    model.load_state_dict(parent.state_dict())

    expected = _fit(parent, parent_cfg)
    for name, value in _fit(model, cfg).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4)


def test_{name}_refuses_wrong_settings():
    cfg = _gen_cfg("{name}")
    cfg.method_kwargs.margins = {{"scale": 2.0}}
    with pytest.raises(ValueError, match="scale"):
        {cls}(cfg)
"""


def method_test(checkout: Checkout, name: str, cls: str, parent: str, parent_cls: str) -> str:
    """Return a test of a method, with the small settings of solo-learn's test of its parent."""
    path = f"tests/methods/test_{parent}.py"
    edits = Edits(checkout.read(path))
    kwargs = base = None
    for node in ast.walk(edits.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "gen_base_cfg":
            base = base or node
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "method_kwargs":
            kwargs = kwargs or node.value
    if base is None or not isinstance(kwargs, ast.Dict):
        raise UpstreamError(f"{path} has no gen_base_cfg(...) and method_kwargs to begin with.")
    known = own_settings(name)["method_kwargs"]
    lines = [
        f"        {edits.segment(key)}: {edits.segment(value)},\n"
        for key, value in zip(kwargs.keys, kwargs.values, strict=True)
        if isinstance(key, ast.Constant) and key.value in known
    ]
    settings = ", ".join(f"{k.arg}={edits.segment(k.value)}" for k in base.keywords)
    body = METHOD.format(
        name=name,
        cls=cls,
        parent=parent,
        parent_cls=parent_cls,
        base=settings,
        kwargs="".join(lines),
    )
    imports = [
        ("pytest", "", None),
        ("torch", "", None),
        ("lightning.pytorch", "seed_everything", None),
        ("solo.methods", cls, None),
        ("solo.methods", parent_cls, None),
    ]
    helpers = "from .utils import gen_base_cfg, gen_batch, gen_trainer, prepare_dummy_dataloaders\n"
    return import_block(imports) + "\n" + helpers + "\n\n" + body


def loss_test(checkout: Checkout, module: str) -> str:
    """Return tests of the losses of one of our modules."""
    imports: list[tuple[str, str, str | None]] = [("torch", "", None)]
    parts = []
    for function in loss_functions(module):
        imports.append(("solo.losses", function, None))
        definition = find_definition(tree_of(module), function)
        assert isinstance(definition, ast.FunctionDef)
        parameters = _parameters(definition)
        required = parameters[: len(parameters) - len(definition.args.defaults)]
        has_margins = "margins" in parameters
        trained = next(p for p in required if "requires_grad" in INPUTS[p])
        inputs = "".join(f"    {name} = {INPUTS[name]}\n" for name in required)
        name = function.removesuffix("_loss_func")
        given = inputs
        if has_margins:
            imports.append(("solo.utils.margins", "Margins", None))
            given += "    margins = Margins(angular=0.1, subtractive=0.2, positive_scale=2.0)\n"
        settings = ["margins=margins"] if has_margins else []
        call = f"{function}({', '.join([*required, *settings])})"
        parts.append(DESCENT.format(name=name, inputs=given, call=call, trained=trained))
        counterpart = _counterpart(checkout, function, required)
        if counterpart is not None:
            imports.append(("solo.losses", counterpart, None))
            parts.append(
                LIKE_PARENT.format(
                    name=name,
                    inputs=inputs,
                    units=", ".join(_unit(parameter) for parameter in required),
                    parent=counterpart,
                    settings=", temperature=0.2" if "temperature" in parameters else "",
                    function=function,
                    trained=trained,
                )
            )
    body = "\n\n".join(parts)
    if "F." in body:
        imports.append(("torch.nn.functional", "", "F"))
    return import_block(imports) + "\n\n" + body


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


def _unit(name: str) -> str:
    """Return how a test hands an input on; some of solo-learn's losses want unit vectors."""
    is_vectors = "torch.randn" in INPUTS[name] and name != "queue"
    return f"F.normalize({name}, dim=1)" if is_vectors else name


def _counterpart(checkout: Checkout, function: str, required: list[str]) -> str | None:
    """Return the loss of solo-learn that ours extends, if it takes the same inputs."""
    for ending in ("_margin_loss_func", "_curv_loss_func"):
        name = function.replace(ending, "_loss_func")
        path = f"solo/losses/{name.removesuffix('_loss_func')}.py"
        if name != function and checkout.has(path):
            definition = find_definition(ast.parse(checkout.read(path)), name)
            if isinstance(definition, ast.FunctionDef):
                theirs = _parameters(definition)[: len(required)]
                return name if theirs == required else None
    return None


def test_path(module: str) -> str:
    """Return where the test of one of our modules goes."""
    _, area, name = place_of(module).split(".")
    return f"tests/{area}/test_{name}.py"
