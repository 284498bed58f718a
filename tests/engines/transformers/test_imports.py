"""Imports of torch and transformers: what is left out, that it comes once it is asked for, and that it is still there
to be left out."""

from __future__ import annotations

import gc
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers import imports, late_modules
from pytest_touchstone.engines.transformers.imports import KnownStructure
from tests.support.tiny import tiny_causal

LATE = (
    "torch._dynamo",
    "torch.export",
    "torch.distributed.tensor",
    "torch.fx.experimental.symbolic_shapes",
    "sympy",
)
"""What no model needs that is scored here."""


def said(program: str, **environ: str) -> list[str]:
    """Return the words that a program prints in a process of its own, after the libraries were imported."""
    begin = (
        "from pytest_touchstone.engines.transformers.imports import compiler_when_called, import_libraries\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", begin + program],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def facts() -> list[str]:
    """What a process says that has imported the libraries."""
    return said("""
import gc, sys
import_libraries()
print(gc.get_freeze_count(), gc.isenabled())
from transformers.loss.loss_for_object_detection import linear_sum_assignment
print("scipy.optimize" in sys.modules, *linear_sum_assignment([[1, 2], [4, 1]])[1], "scipy.optimize" in sys.modules)
import torch
print("torch.export" in sys.modules, torch.export.Dim("rows").__name__, "torch.export" in sys.modules)
import torch.export
print(torch.export is sys.modules["torch.export"])
""")


def test_import_libraries_keeps_what_they_make_from_the_collector(facts: list[str]) -> None:
    assert int(facts[0]) > 100_000
    assert facts[1] == "True"
    assert gc.isenabled()


def test_scipy_when_called_imports_the_module_for_the_losses_that_call_it(facts: list[str]) -> None:
    assert facts[2:6] == ["False", "0", "1", "True"]
    from transformers.loss import loss_for_object_detection as theirs

    assert "from scipy.optimize import linear_sum_assignment" in inspect.getsource(theirs)


def test_what_import_torch_left_out_comes_once_it_is_asked_for(facts: list[str]) -> None:
    assert facts[6:] == ["False", "rows", "True", "True"]


def test_a_model_is_loaded_and_answers_without_what_import_torch_and_compiler_when_called_leave_out(
    tmp_path: Path,
) -> None:
    folder = tiny_causal(tmp_path / "model")
    found = said(
        f"""
import sys
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.factory import TransformersFactory
opened = TransformersFactory().sharing(ModelSettings(device="cpu"))
engine = opened(resolve({str(folder)!r}, seq_len=None)[0])
print(engine.answer([Loglikelihood("one two", " three")])[0].logprob < 0)
print(*(name for name in {LATE!r} if name in sys.modules))
"""
    )
    assert found == ["True"]


def test_torch_and_transformers_import_all_of_it_by_themselves() -> None:
    import torch
    import torch._prims_common as shapes
    from transformers import masking_utils
    from transformers.integrations import deepgemm

    assert re.search(r"^    export as export,$", inspect.getsource(torch), re.MULTILINE)
    assert "\n@torch._dynamo." in inspect.getsource(deepgemm)
    assert "\nfrom torch._dynamo._trace_wrapped_higher_order_op import" in inspect.getsource(masking_utils)
    assert "import sympy" in inspect.getsource(shapes.elementwise_dtypes)


def test_functions_marked_by_stand_ins_are_compiled_as_marked() -> None:
    found = said(
        """
import sys
import torch
with compiler_when_called():
    @torch.compiler.disable
    def plain(x):
        return torch.compiler.is_compiling()

    @torch.compiler.disable(recursive=False)
    def shallow(x):
        return torch.compiler.is_compiling()

    @torch._dynamo.assume_constant_result
    def constant():
        return 7

    @torch._dynamo.allow_in_graph
    def whole(x):
        return x + 1

    print(plain(1), shallow(1), constant(), whole(1), "torch._dynamo" in sys.modules)
print("torch._dynamo" in sys.modules)

def compiled(x):
    return plain(x), shallow(x), torch.compiler.is_compiling(), whole(x) * constant()

print(*torch.compile(compiled, backend="eager")(torch.ones(1)))
print(constant._dynamo_marked_constant, torch._dynamo.trace_rules.is_callable_allowed(whole))
"""
    )
    assert found == [
        "False",
        "False",
        "7",
        "2",
        "True",
        "False",
        "False",
        "False",
        "True",
        "tensor([14.])",
        "True",
        "True",
    ]


def test_parts_of_the_compiler_can_be_imported_while_others_stand_for_it() -> None:
    found = said(
        """
import sys
import torch
with compiler_when_called():
    stand_in = sys.modules["torch._dynamo"]
    from torch._dynamo.utils import counters
    import torch._dynamo.config
    print(sys.modules["torch._dynamo"] is stand_in, torch._dynamo.utils.counters is counters)
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    with TransformGetItemToIndex():
        print(int(torch.arange(3)[torch.tensor(2)]))
    import sympy
    print(isinstance(1, sympy.Basic), isinstance(sympy.Integer(1), sympy.Basic))
print(stand_in.config is torch._dynamo.config)
"""
    )
    assert found == ["False", "True", "2", "False", "True", "True"]


NUMBERS = st.booleans() | st.integers(-3, 3)


@given(st.data())
def test_sizes_that_are_numbers_are_taken_as_torch_takes_them(data: st.DataObject) -> None:
    import torch.fx.experimental.symbolic_shapes as real

    stand_in = imports._Shapes()
    for name in ("expect_true", "guard_or_false", "guard_or_true", "statically_known_true"):
        holds = data.draw(st.booleans())
        assert getattr(stand_in, name)(holds) is getattr(real, name)(holds)
    conditions = data.draw(st.lists(st.booleans(), min_size=1, max_size=3))
    assert (stand_in.sym_and(*conditions), stand_in.sym_or(*conditions)) == (
        real.sym_and(*conditions),
        real.sym_or(*conditions),
    )
    size = data.draw(st.integers(-3, 3))
    for name in ("guard_int", "guarding_hint_or_throw", "is_nested_int", "has_guarding_hint"):
        assert getattr(stand_in, name)(size) == getattr(real, name)(size)
    one, other = (data.draw(st.lists(st.integers(0, 2), max_size=2)) for _ in range(2))
    assert stand_in.sym_eq(one, tuple(other)) == real.sym_eq(one, tuple(other))
    assert stand_in.sym_eq(size, 1) == real.sym_eq(size, 1)


def test_sizes_with_symbols_are_torchs_own() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbol = ShapeEnv().create_unbacked_symint()
    stand_in = imports._Shapes()
    assert not stand_in.guard_or_false(symbol == 1)
    assert stand_in.guard_or_true(symbol == 1)
    assert stand_in.sym_eq((symbol,), (symbol,))
    assert stand_in.statically_known_true(True)


def test_scipy_when_called_gives_others_the_module_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.optimize as real

    with imports.scipy_when_called():
        assert sys.modules["scipy.optimize"] is real
    monkeypatch.delitem(sys.modules, "scipy.optimize")
    with imports.scipy_when_called():
        from scipy.optimize import linear_sum_assignment

        stand_in = sys.modules["scipy.optimize"]
        assert stand_in is not real
        assert inspect.getmodule(inspect) is inspect
        assert not hasattr(stand_in, "__file__")
        monkeypatch.setattr(late_modules, "import_module", lambda _: real)
        assert stand_in.brentq is real.brentq
        assert "scipy.optimize" not in sys.modules
        assert linear_sum_assignment([[2, 1], [1, 2]])[1].tolist() == [1, 0]


def test_quick_transformers_knows_the_models_that_transformers_finds(tmp_path: Path) -> None:
    found = said(
        """
import sys
import_libraries()
import transformers
from transformers.utils import import_utils
known = import_utils.define_import_structure
place = transformers.models.__path__[0]
for prefix in (None, "models"):
    print(known(place, prefix) == known._define(place, prefix))
known._known.clear()
define, known._define = known._define, None  # from here on, what is kept has to do
print(known(place) == define(place), len(known(place)[frozenset({"torch"})]) > 300)
known._define = define
print(known(place + "/__init__.py") == known(place))
print(known(place + "/llama/__init__.py") == define(place + "/llama/__init__.py"))
print(import_utils.is_torch_distributed_available(), transformers.LlamaForCausalLM.__module__)
""",
        TOUCHSTONE_CACHE=str(tmp_path),
    )
    assert found == [*["True"] * 6, "False", "transformers.models.llama.modeling_llama"]
    assert len(list((tmp_path / "imports").iterdir())) == 1


def test_transformers_reads_its_models_and_looks_for_sharded_tensors_by_itself() -> None:
    from transformers.distributed import sharding_utils
    from transformers.utils import import_utils

    assert "define_import_structure(Path" in Path(sys.modules["transformers"].__file__ or "").read_text()
    assert "import DTensor" in inspect.getsource(sharding_utils)
    assert ".read()" in inspect.getsource(import_utils.create_import_structure_from_path)


class Models:
    """A folder of models, and the function that finds their structure, which counts its calls."""

    def __init__(self, root: Path) -> None:
        self.place = root / "transformers" / "models"
        self.calls = 0
        self.write("llama", "LlamaModel")

    def write(self, name: str, model: str) -> None:
        """Write one model's file."""
        (self.place / name).mkdir(parents=True, exist_ok=True)
        (self.place / name / f"modeling_{name}.py").write_text(model)

    def define(self, place: Path, prefix: str | None = None) -> imports.Structure:
        """Return the structure."""
        self.calls += 1
        files = sorted(Path(place).glob("*/*.py"))
        names = {f"{file.parent.name}.{file.stem}": set(file.read_text().split()) for file in files}
        return {frozenset({"torch"}): names, frozenset(): {}}


@pytest.fixture
def models(tmp_path: Path) -> Models:
    """A folder of one model."""
    return Models(tmp_path)


def structure(models: Models, folder: Path, prefix: str | None = None) -> imports.Structure:
    """Return the structure as a new process finds it."""
    return KnownStructure(models.define, folder)(models.place, prefix)


def test_a_structure_is_found_once_and_again_when_a_file_changes(models: Models, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    expected = {frozenset({"torch"}): {"llama.modeling_llama": {"LlamaModel"}}, frozenset(): {}}
    assert structure(models, folder) == structure(models, folder) == expected
    assert models.calls == 1
    models.write("llama", "LlamaModel LlamaForCausalLM")
    assert structure(models, folder)[frozenset({"torch"})] == {
        "llama.modeling_llama": {"LlamaModel", "LlamaForCausalLM"}
    }
    models.write("gpt2", "GPT2Model")
    assert set(structure(models, folder, "models")[frozenset({"torch"})]) == {
        "models.llama.modeling_llama",
        "models.gpt2.modeling_gpt2",
    }
    assert models.calls == 3


def test_whoever_changes_a_structure_changes_no_other(models: Models, tmp_path: Path) -> None:
    known = KnownStructure(models.define, tmp_path / "kept")
    one = known(models.place)
    one[frozenset()].update({"own": {"Own"}})
    one[frozenset({"torch"})]["llama.modeling_llama"].add("Own")
    assert known(models.place) == models.define(models.place)


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"state": 1}', '{"structure": {}}', "\udcff"])
def test_a_broken_file_of_a_structure_is_written_again(models: Models, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "kept"
    right = structure(models, folder)
    (path,) = folder.iterdir()
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert structure(models, folder) == right
    assert json.loads(path.read_bytes())["state"]
    assert models.calls == 2


def test_a_structure_is_found_where_nothing_can_be_kept(models: Models, tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    assert structure(models, folder) == models.define(models.place)
