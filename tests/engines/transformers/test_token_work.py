"""What a model is given for a text that is asked for: plainly, or through the checkpoint's chat template."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, Refusal, RollingAnswer, RollingLoglikelihood, Turn
from pytest_touchstone.engines.settings import Chat, ModelSettings
from pytest_touchstone.engines.transformers.token_work import (
    ChatMode,
    ScoringPlan,
    TargetScore,
    TokenizedPrompt,
    apply_chat_mode,
    chat_mode_of,
    plan,
    prepare,
)
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.lines import naming
from tests.support.tiny import bytelevel_tokenizer, metaspace_tokenizer

INFO = CheckpointInfo("c", "c", Path("c"), "causal", "folder", "llama", "L", 128)
TURNS = (Turn("user", "one?"), Turn("assistant", "two"), Turn("user", "three?"))
REQUEST = Generate("one? two three?", max_new_tokens=8, turns=TURNS)
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<me>{% endif %}"
)


def tokenizer(template: str | None = None, *, metaspace: bool = False) -> Any:
    made = metaspace_tokenizer() if metaspace else bytelevel_tokenizer()
    made.chat_template = template
    return made


def prepared(made: Any, request: Generate = REQUEST, **asking: Any) -> TokenizedPrompt | Refusal:
    return prepare(request, TextTokenizer(made), seq_len=128, rows=1000, asking=ChatMode(**asking))


def text_of(made: Any, prompt: TokenizedPrompt | Refusal) -> str:
    assert isinstance(prompt, TokenizedPrompt)
    found: str = made.decode(list(prompt.tokens))
    return found


@pytest.mark.parametrize(
    ("wanted", "template", "chat"),
    [("auto", TEMPLATE, True), ("auto", None, False), ("on", TEMPLATE, True), ("off", TEMPLATE, False)],
)
def test_auto_goes_by_the_template_and_on_and_off_by_the_person(
    wanted: Chat, template: str | None, chat: bool
) -> None:
    assert chat_mode_of(INFO, tokenizer(template), ModelSettings(chat=wanted)).chat is chat


def test_on_without_a_template_is_an_error_and_not_a_lower_score() -> None:
    with pytest.raises(CheckpointError, match=naming("chat template", "--eval-chat off")):
        chat_mode_of(INFO, tokenizer(), ModelSettings(chat="on"))


def test_turns_are_written_by_the_template_up_to_the_assistants_turn() -> None:
    made = tokenizer(TEMPLATE)
    prompt = prepared(made, chat=True)
    assert text_of(made, prompt) == "<user>one?\n<assistant>two\n<user>three?\n<me>"
    assert isinstance(prompt, TokenizedPrompt)
    assert prompt.chat


def test_an_answer_that_has_been_begun_goes_on_from_its_last_character() -> None:
    made = tokenizer(TEMPLATE)
    begun = replace(REQUEST, turns=(Turn("user", "one?"), Turn("assistant", "```python\n")))
    assert text_of(made, prepared(made, begun, chat=True)) == "<user>one?\n<assistant>```python\n"


def test_without_chat_the_plain_prompt_is_given() -> None:
    made = tokenizer(TEMPLATE)
    prompt = prepared(made)
    assert text_of(made, prompt) == "one? two three?"
    assert isinstance(prompt, TokenizedPrompt)
    assert not prompt.chat


def test_a_question_without_turns_is_plain_unless_chat_is_demanded() -> None:
    made, plain = tokenizer(TEMPLATE), Generate("one?", max_new_tokens=8)
    assert text_of(made, prepared(made, plain, chat=True)) == "one?"
    refusal = prepared(made, plain, chat=True, only_chat=True)
    assert isinstance(refusal, Refusal)
    assert "no turns" in refusal.reason


def test_one_bos_of_the_template_is_not_doubled_by_the_tokenizer() -> None:
    made = tokenizer("<s>" + TEMPLATE, metaspace=True)
    prompt = prepared(made, chat=True)
    assert isinstance(prompt, TokenizedPrompt)
    assert prompt.tokens.count(made.bos_token_id) == 1


@pytest.mark.parametrize("chat", [True, False])
def test_two_bos_are_an_error(chat: bool) -> None:
    made = tokenizer("<s><s>" + TEMPLATE, metaspace=True)
    request = Generate("<s><s>one?", max_new_tokens=8, turns=TURNS)
    refusal = prepared(made, request, chat=chat)
    assert isinstance(refusal, Refusal)
    assert "begins with <s> twice" in refusal.reason


LOOP = "{% for m in messages %}"
FAMILIES = {
    "llama 2": "{{ bos_token }}" + LOOP + "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}",
    "llama 3": "{{ bos_token }}" + LOOP + "<|{{ m.role }}|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n\n{% endif %}",
    "mistral": "{{ bos_token }}" + LOOP + "{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
    "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    "chatml": LOOP + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "gemma": "{{ bos_token }}"
    + LOOP
    + "<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    "phi 3": LOOP + "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "phi 4": LOOP + "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}",
    "glm 4": "[gMASK]<sop>" + LOOP + "<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "deepseek": "{{ bos_token }}" + LOOP + "{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}",
    "zephyr": LOOP + "<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "falcon": LOOP + "{{ m.role | capitalize }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}Falcon:{% endif %}",
    "command r": "{{ bos_token }}" + LOOP + "<|turn|><|{{ m.role }}|>{{ m.content }}<|end_turn|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|><|chatbot|>{% endif %}",
    "internlm": "{{ bos_token }}" + LOOP + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "yi, after a line break": "\n\n{{ bos_token }}" + LOOP + "{{ m.role }}\n{{ m.content }}\n{% endfor %}",
    "olmo": "{{ eos_token }}" + LOOP + "<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "granite": LOOP
    + "<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}",
    "smollm": "{% if messages[0].role != 'system' %}<|im_start|>system\nHelp.<|im_end|>\n{% endif %}"
    + LOOP
    + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "vicuna": "{{ bos_token }}A chat. " + LOOP + "{{ m.role | upper }}: {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}",
    "alpaca": LOOP + "### {{ m.role }}:\n{{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Response:\n{% endif %}",
    "stablelm": LOOP + "<|{{ m.role }}|>\n{{ m.content | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "minicpm": "{{ bos_token }}" + LOOP + "<{{ m.role }}>{{ m.content | trim }}{% endfor %}",
    "space before bos": "  {{ bos_token }}" + LOOP + "{{ m.content }}{% endfor %}",
}


def framing(made: Any, front: str) -> Any:
    """Return the tokenizer with special tokens that it puts in front of every text."""
    from tokenizers import processors

    made.add_tokens(["[gMASK]", "<sop>", "<|im_start|>", "<|im_end|>"], special_tokens=True)
    special = [(token, made.convert_tokens_to_ids(token)) for token in front.split()]
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{front} $A", special_tokens=special
    )
    return made


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("front", ["<s>", "[gMASK] <sop>"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokens_of_a_chat_are_those_of_transformers(family: str, front: str, begun: bool) -> None:
    made = framing(tokenizer(FAMILIES[family], metaspace=True), front)
    turns = (*TURNS, Turn("assistant", "four")) if begun else TURNS
    prompt = prepare(
        replace(REQUEST, turns=turns), TextTokenizer(made), seq_len=500, rows=1000, asking=ChatMode(chat=True)
    )
    assert isinstance(prompt, TokenizedPrompt)
    assert list(prompt.tokens) == made.apply_chat_template(
        [{"role": turn.role, "content": turn.text} for turn in turns],
        add_generation_prompt=not begun,
        continue_final_message=begun,
        return_dict=False,
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ messages[9].content.x }}", "UndefinedError"),
        ("{{ messages + 1 }}", "TypeError"),
        ("{{ {}.x.y }}", "UndefinedError"),
        ("{{ 'x' | round }}", "TypeError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for x in range(10 ** 9) %}x{% endfor %}", "a huge number"),
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ 'a'.join(1) }}", "TypeError"),
        ("{{ '%d' % 'x' }}", "TypeError"),
        ("{{ messages.__class__.mro() }}", "SecurityError"),
        ("{% if false %}x{% endif %}", "writes nothing"),
    ],
)
def test_a_template_that_fails_is_a_refusal_of_one_line_with_its_own_words(template: str, words: str) -> None:
    refusal = prepared(tokenizer(template), chat=True)
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason
    assert "--eval-chat off" in refusal.reason
    assert "\n" not in refusal.reason


def test_half_of_a_character_is_a_refusal_in_prompts_and_in_chats() -> None:
    made = tokenizer(TEMPLATE)
    plain = prepared(made, Generate("one \ud83d", max_new_tokens=8))
    chat = prepared(made, replace(REQUEST, turns=(Turn("user", "one \udc00?"),)), chat=True)
    for refusal, half in ((plain, "U+D83D at character 5"), (chat, "U+DC00")):
        assert isinstance(refusal, Refusal)
        assert half in refusal.reason


@pytest.mark.parametrize("chat", [True, False])
def test_a_chat_has_stops_and_a_limit_of_its_own(chat: bool) -> None:
    request = replace(REQUEST, stop=("def",), turns_stop=("```",), turns_max_new_tokens=20)
    prompt = prepared(tokenizer(TEMPLATE), request, chat=chat)
    assert isinstance(prompt, TokenizedPrompt)
    assert prompt.request.stop == (("```",) if chat else ("def",))
    assert prompt.request.max_new_tokens == (20 if chat else 8)
    own = prepared(tokenizer(TEMPLATE), request, chat=chat, max_new_tokens=5)
    assert isinstance(own, TokenizedPrompt)
    assert own.request.max_new_tokens == 5
    alike = prepared(tokenizer(TEMPLATE), replace(REQUEST, stop=("def",)), chat=chat)
    assert isinstance(alike, TokenizedPrompt)
    assert (alike.request.stop, alike.request.max_new_tokens) == (("def",), 8)


def test_a_chat_may_have_no_stop_at_all() -> None:
    prompt = prepared(tokenizer(TEMPLATE), replace(REQUEST, stop=("def",), turns_stop=()), chat=True)
    assert isinstance(prompt, TokenizedPrompt)
    assert prompt.request.stop == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"turns_stop": ("",)}, "a stop sequence is empty"),
        ({"turns_max_new_tokens": 0}, "turns_max_new_tokens is 0"),
    ],
)
def test_what_is_wrong_with_a_chats_own_stops_and_limit_is_said(change: dict[str, Any], words: str) -> None:
    refusal = prepared(tokenizer(TEMPLATE), replace(REQUEST, **change))
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


@pytest.mark.parametrize(
    "written", ["message.content | trim", "message.content", "message['content'].strip()"]
)
def test_an_answer_begun_with_a_block_keeps_its_line_break_where_a_template_strips(written: str) -> None:
    made = tokenizer(
        "{% for message in messages %}<{{ message.role }}>{{ " + written + " }}<end>{% endfor %}"
    )
    begun = replace(REQUEST, turns=(Turn("user", "one?"), Turn("assistant", "Here:\n```python\n")))
    assert text_of(made, prepared(made, begun, chat=True)) == "<user>one?<end><assistant>Here:\n```python\n"


def test_the_persons_limit_goes_before_the_benchmarks() -> None:
    prompt = prepared(tokenizer(), max_new_tokens=100)
    assert isinstance(prompt, TokenizedPrompt)
    assert prompt.request.max_new_tokens == 100
    refusal = prepared(tokenizer(), max_new_tokens=200)
    assert isinstance(refusal, Refusal)
    assert "--eval-max-new-tokens" in refusal.reason


# A system prompt, and reasoning switched on or off


WITH_SYSTEM = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if enable_thinking %}T{% endif %}"
)
USERS_ALONE = "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}{% endif %}{% endfor %}"
RAISES = "{{ raise_exception('no system role') }}"


def test_a_system_prompt_is_written_by_the_template() -> None:
    mode = chat_mode_of(INFO, tokenizer(WITH_SYSTEM), ModelSettings(system="Be brief."))
    prompt = prepare(
        replace(REQUEST, turns=(Turn("user", "q"),)),
        TextTokenizer(tokenizer(WITH_SYSTEM)),
        seq_len=128,
        rows=10**6,
        asking=mode,
    )
    assert isinstance(prompt, TokenizedPrompt)
    assert prompt.request.turns == (Turn("system", "Be brief."), Turn("user", "q"))


@pytest.mark.parametrize(
    ("own", "system"),
    [
        ((), "Be brief."),
        ((Turn("system", "Find it."),), "Be brief.\n\nFind it."),
        ((Turn("system", "Be brief.\n#\nFind it."),), "Be brief.\n#\nFind it."),
        ((Turn("system", ""),), "Be brief."),
    ],
)
def test_a_system_prompt_stands_once_before_the_questions_own(own: tuple[Turn, ...], system: str) -> None:
    request = replace(REQUEST, turns=(*own, Turn("user", "q")))
    asked = apply_chat_mode(request, chat=True, asking=ChatMode(chat=True, system="Be brief."))
    assert asked.turns == (Turn("system", system), Turn("user", "q"))


@pytest.mark.parametrize(
    ("metaspace", "text", "after_bos"), [(True, "q", True), (True, "<s>q", False), (False, "q", False)]
)
def test_a_whole_text_is_scored_without_the_bos_that_a_tokenizer_puts_before_it(
    metaspace: bool, text: str, after_bos: bool
) -> None:
    made = TextTokenizer(tokenizer(metaspace=metaspace))
    scoring = plan(RollingLoglikelihood(text), made, seq_len=128, rows=10**6)
    assert isinstance(scoring, ScoringPlan)
    answer = scoring.answer([TargetScore(-1.0, is_greedy=True)])
    assert isinstance(answer, RollingAnswer)
    assert answer.after_bos is after_bos
    assert not made.begins(scoring.work[0].targets) or text.startswith("<s>")


@pytest.mark.parametrize(
    ("template", "chat", "said"),
    [
        (None, "auto", "its chat template is not used, or missing"),
        (WITH_SYSTEM, "off", "its chat template is not used, or missing"),
        (USERS_ALONE, "auto", "its chat template leaves system prompts out"),
        (RAISES, "auto", "its chat template takes no system prompt"),
    ],
)
def test_a_template_without_a_place_for_a_system_prompt_is_an_error(
    template: str | None, chat: Chat, said: str
) -> None:
    with pytest.raises(CheckpointError, match=f"--eval-set system, but {said}; leave the option out"):
        chat_mode_of(INFO, tokenizer(template), ModelSettings(chat=chat, system="Be brief."))


NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "turns"),
    [
        (WITH_SYSTEM, (Turn("system", "You add."), Turn("user", "q"), Turn("assistant", "a"))),
        (NO_SYSTEM, (Turn("user", "You add.\n\nq"), Turn("assistant", "a"))),
        (USERS_ALONE, (Turn("user", "You add.\n\nq"), Turn("assistant", "a"))),
    ],
)
def test_a_questions_own_system_turn_begins_the_users_where_the_template_takes_none(
    template: str, turns: tuple[Turn, ...]
) -> None:
    own = (Turn("system", "You add."), Turn("user", "q"), Turn("assistant", "a"))
    mode = chat_mode_of(INFO, tokenizer(template), ModelSettings())
    assert apply_chat_mode(replace(REQUEST, turns=own), True, mode).turns == turns
    assert apply_chat_mode(replace(REQUEST, turns=own[1:]), True, mode).turns == own[1:]


def test_thinking_is_told_to_a_template_that_knows_it_alone() -> None:
    turns = (Turn("user", "q"),)
    plain = TextTokenizer(tokenizer(WITH_SYSTEM))
    said = {how: plain.with_reasoning("auto", how).conversation(turns) for how in (None, "on", "off")}
    assert said == {None: "<user>q\n", "on": "<user>q\nT", "off": "<user>q\n"}
    chat_mode_of(INFO, tokenizer(WITH_SYSTEM), ModelSettings(thinking="on"))
    with pytest.raises(CheckpointError, match=naming("--eval-set thinking=on", "enable_thinking")):
        chat_mode_of(INFO, tokenizer(USERS_ALONE), ModelSettings(thinking="on"))


def test_marks_that_are_special_tokens_stay_readable_and_a_prompt_may_open_them() -> None:
    made = bytelevel_tokenizer()
    made.add_special_tokens({"additional_special_tokens": ["[THINK]", "[/THINK]", "<x>"]})
    ids = made.encode("[THINK]the boat[/THINK]the<x> river", add_special_tokens=False)
    assert TextTokenizer(made).readable(ids) == "the boatthe river"
    aware = TextTokenizer(made).with_reasoning("auto", None)
    assert aware.reasoning is not None
    assert aware.readable(ids) == "[THINK]the boat[/THINK]the river"
    assert aware.special == set(made.all_special_ids) - set(
        made.convert_tokens_to_ids(["[THINK]", "[/THINK]"])
    )
    assert [aware.opens_reasoning(ids[:count]) for count in (1, 2)] == [True, False]
    assert TextTokenizer(made).with_reasoning("off", None).readable(ids) == "the boatthe river"
