"""What a user may call a model: a preset, a path, a size."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.errors import SpecError
from zeroplan.spec.families import MODULES, family
from zeroplan.spec.models import load_architecture
from zeroplan.spec.presets import list_presets, load_preset
from zeroplan.spec.sizes import NEWEST, parameters_of_size, shape_of_size
from zeroplan.workload.count import count_model

LLAMA = load_preset("llama-3.2-1b").config


@pytest.mark.published
@pytest.mark.parametrize("name", list_presets())
def test_a_preset_has_as_many_parameters_as_the_published_model(name: str) -> None:
    """Each file states what the class of transformers 5.24 has on the meta device."""
    assert count_model(load_architecture(name), 32).total_parameters == load_preset(name).parameters


@pytest.mark.published
@pytest.mark.parametrize(
    ("name", "billions"),
    [("zero-7.5b", 7.5), ("zero-128b", 128), ("zero-1t", 1000), ("gpt3-175b", 175)],
)
def test_the_shapes_of_papers_have_the_sizes_that_the_papers_state(
    name: str, billions: float
) -> None:
    """ZeRO, arXiv 1910.02054, table 1; GPT-3, arXiv 2005.14165, table 2.1."""
    assert load_preset(name).parameters == pytest.approx(billions * 1e9, rel=0.01)


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_is_called_as_its_source_is_stated(name: str) -> None:
    preset = load_preset(name)
    assert name == name.lower()
    assert "arXiv" in preset.source or "config.json of" in preset.source
    assert load_architecture(name).source == f"preset {name!r} ({preset.source})"


def test_the_registry_lists_what_the_modules_have() -> None:
    for module, names in MODULES.items():
        rules = import_module(f"zeroplan.spec.families.{module}").RULES
        assert sorted(rules) == sorted(names), module


def test_no_family_is_read_by_two_rules() -> None:
    names = [name for names in MODULES.values() for name in names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("model_type", "class_name", "expected"),
    [
        ("llama", "", "llama"),
        ("", "LlamaForCausalLM", "llama"),
        ("", "GPT2LMHeadModel", "gpt2"),
        ("", "GPTBigCodeForCausalLM", "gpt_bigcode"),
        ("something-new", "Qwen2ForCausalLM", "qwen2"),
        ("Yi", "YiForCausalLM", "yi"),
        ("", "", None),
        ("something-new", "SomethingNewForCausalLM", None),
    ],
)
def test_a_family_is_known_by_its_type_and_else_by_its_class(
    model_type: str, class_name: str, expected: str | None
) -> None:
    assert family(model_type, class_name) == expected


def test_a_path_leads_to_a_file_or_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    file = tmp_path / "my-model" / "config.json"
    file.write_text(json.dumps(LLAMA))
    by_file = load_architecture(str(file))
    by_folder = load_architecture(tmp_path / "my-model")
    from_spec = load_architecture("my-model", relative_to=tmp_path)
    assert by_file.stacks == by_folder.stacks == from_spec.stacks
    assert {by_file.name, by_folder.name, from_spec.name} == {"my-model"}


@pytest.mark.parametrize("word", ["llama-3.1-8", "meta-llama/Llama-3.1-8B"])
def test_an_unknown_name_is_met_with_a_near_one(word: str) -> None:
    with pytest.raises(SpecError, match=r"Perhaps you meant 'llama-3.1-8b'"):
        load_architecture(word)


def test_what_the_file_left_open_is_said(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    config = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    file.write_text(json.dumps(config | {"num_nextn_predict_layers": 1, "model_type": "other"}))
    said = " ".join(load_architecture(file).assumptions)
    assert "tie_word_embeddings = False" in said
    assert "not counted: num_nextn_predict_layers" in said
    assert "read by the rule for 'llama'" in said


@pytest.mark.parametrize(("size", "preset"), NEWEST.items())
def test_a_size_is_the_newest_dense_llama_of_that_size(size: str, preset: str) -> None:
    architecture = load_architecture(size.upper())
    assert architecture.name == preset
    assert architecture.assumptions[0] == f"size {size!r} is {preset}"
    total = count_model(architecture, 32).total_parameters
    assert total == pytest.approx(parameters_of_size(size), rel=0.25)  # 1b is 1.24 billion


@given(st.integers(min_value=100, max_value=2_000_000))
def test_any_other_size_is_a_llama_like_shape_within_one_percent(millions: int) -> None:
    size = f"{millions}m"
    shape = shape_of_size(size)
    assert shape.parameters == pytest.approx(parameters_of_size(size), rel=0.01)
    assert shape.hidden % shape.head_dim == 0
    assert (shape.hidden // shape.head_dim) % shape.kv_heads == 0


@pytest.mark.parametrize("size", ["350m", "7.5b", "1t"])
def test_the_shape_of_a_size_is_said_with_its_exact_count(size: str) -> None:
    architecture = load_architecture(size)
    total = count_model(architecture, 32).total_parameters
    assert shape_of_size(size).parameters == total
    assert f"Llama-like shape of {total:,} parameters" in architecture.assumptions[0]


@pytest.mark.parametrize("size", ["0b", "1m", "900000t"])
def test_a_size_that_no_shape_has_is_refused(size: str) -> None:
    with pytest.raises(SpecError, match="no Llama-like shape has it"):
        load_architecture(size)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("name", list_presets())
def test_a_preset_states_the_count_of_its_class(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    preset = load_preset(name)
    config = transformers.AutoConfig.for_model(**preset.config)
    (class_name,) = config.architectures
    with torch.device("meta"):
        model = getattr(transformers, class_name)(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == preset.parameters


@pytest.mark.parametrize(
    ("word", "likely"),
    [
        ("70B-instruct", "70b"),
        ("8b_chat", "8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen2.5-7B-Instruct", "qwen2.5-7b"),
    ],
)
def test_a_name_that_holds_a_size_or_a_preset_gets_it_suggested(word: str, likely: str) -> None:
    with pytest.raises(SpecError, match=f"Perhaps you meant '{likely}'"):
        load_architecture(word)
