"""Replies of models that reason, as servers give them, and what is scored of each: what follows the last closed trace,
nothing where a trace is open. What looks like a trace and stays in the text marks the result."""

from __future__ import annotations

from typing import NamedTuple

H, F = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
END = "<|end|><|start|>assistant"
G = "<|channel>thought\n"
LONG = "Two and three make five."


class Reply(NamedTuple):
    """A ``text``, and the ``answer`` in it; ``apart`` is the reasoning that the server gives beside it."""

    name: str
    text: str
    answer: str
    apart: str = ""
    limit: bool = False
    traced: bool = True
    marked: bool = False


REPLIES = (
    # Without a trace
    Reply("plain", "#### 5", "#### 5", traced=False),
    Reply("words", "analysis of 2 + 3; final: #### 5", "analysis of 2 + 3; final: #### 5", traced=False),
    Reply("words_limit", "analysis: 2 + 3, #### 5", "analysis: 2 + 3, #### 5", limit=True, traced=False),
    Reply("token", "The assistantfinal token: #### 5", "The assistantfinal token: #### 5", traced=False),
    Reply("token_quoted", 'Say "assistantfinal". #### 5', 'Say "assistantfinal". #### 5', traced=False),
    Reply("token_code", "`assistantfinal` it is #### 5", "`assistantfinal` it is #### 5", traced=False),
    Reply("response", "So: Here is my response: #### 5", "So: Here is my response: #### 5", traced=False),
    Reply("heading", "<think step by step> #### 5", "<think step by step> #### 5", traced=False),
    # Merely mentioned
    Reply("tag_in_code", "The `<think>` tag. #### 5", "The `<think>` tag. #### 5", traced=False, marked=True),
    Reply(
        "tag_in_prose",
        "Use the <think> tag. #### 5",
        "Use the <think> tag. #### 5",
        traced=False,
        marked=True,
    ),
    Reply(
        "tag_in_fence",
        "Write\n```\n<think>\nit\n```\n#### 5",
        "Write\n```\n<think>\nit\n```\n#### 5",
        limit=True,
        traced=False,
        marked=True,
    ),
    Reply(
        "tags_in_prose",
        "The tags <think> and </think> are markup. #### 5",
        "The tags <think> and </think> are markup. #### 5",
        traced=False,
        marked=True,
    ),
    # As lm-evaluation-harness: the last end counts, wherever it stands
    Reply("mention", "<think>7</think>#### 5\nMy thoughts end before </think> as asked.", "as asked."),
    Reply("code_tag", "The HTML is `<b></think>` so\n#### 5", "` so\n#### 5"),
    # Tags
    Reply("closed", "<think>maybe 7</think>\n\n#### 5", "#### 5"),
    Reply("crlf", "<think>\r\n7\r\n</think>\r\n#### 5", "#### 5"),
    Reply("bom", "\ufeff<think>7</think>#### 5", "#### 5"),
    Reply("upper", "<THINK>7</THINK>#### 5", "#### 5"),
    Reply("upper_open", "<THINK>\n7 #### 7", ""),
    Reply("spaced", "< think >7</ think >#### 5", "#### 5"),
    Reply("spaced_end", "7 or 8 </ think > #### 5", "#### 5"),
    Reply("attribute", '<think lang="en">7</think>#### 5', "#### 5"),
    Reply("attribute_open", '<think effort="low">7 #### 7', "", limit=True),
    Reply("open_limit", "<think>maybe it is 5, let me see 5", "", limit=True),
    Reply("open", "<think>maybe it is 5", ""),
    Reply("no_beginning", "maybe 7, no 8</think>\n#### 5", "#### 5"),
    Reply("two", "<think>a 7</think>#### 6<think>b 8</think>#### 5", "#### 5"),
    Reply("two_open", "<think>a</think>#### 5\n<think>hmm is it 9", ""),
    Reply("two_open_line", "<think>a</think>#### 5 <think>hmm is it 9", "", limit=True),
    Reply("middle", "The answer: <think>7</think>#### 5", "#### 5"),
    Reply("middle_only", "I say #### 5 <think>or 9?</think>", ""),
    Reply("lead", "Sure.\n<think>7</think>\n#### 5", "#### 5"),
    Reply("lead_open", "Sure.\n<think>maybe #### 5", "", limit=True),
    Reply("lead_open_line", "Sure. <think>maybe #### 7", "", limit=True),
    Reply("only", "<think>it is #### 5</think>", ""),
    Reply("only_space", "<think>it is #### 5</think>\n\n  \n", ""),
    Reply("nested", "<think>a <think>b 7</think> c 8</think>#### 5", "#### 5"),
    Reply("nested_once", "<think>a <think>b 7</think>#### 5", "#### 5"),
    Reply("ends", "<think>7</think></think>#### 5", "#### 5"),
    Reply("two_kinds", "<think>a</think><thinking>b 7</thinking>#### 5", "#### 5"),
    Reply("thinking", "<thinking>7</thinking>#### 5", "#### 5"),
    Reply("thinking_of_tag", "<thinking>the tag </think> is 7</thinking>#### 5", "#### 5"),
    Reply("thought", "<thought>7</thought>#### 5", "#### 5"),
    Reply("reasoning", "<reasoning>7</reasoning><answer>#### 5</answer>", "<answer>#### 5</answer>"),
    Reply("seed", "<seed:think>7</seed:think>#### 5", "#### 5"),
    Reply("longcat", "<longcat_think>7</longcat_think>\n#### 5", "#### 5"),
    Reply("ernie", "<think>7</think>\n<response>#### 5</response>", "<response>#### 5</response>"),
    Reply("hunyuan", "<think>7</think>\n<answer>\n#### 5\n</answer>", "<answer>\n#### 5\n</answer>"),
    Reply("question", "<think>Question: 7? yes</think>#### 5", "#### 5"),
    Reply("kimi", "◁think▷7 8◁/think▷#### 5", "#### 5"),
    Reply("kimi_no_beginning", "7 8◁/think▷#### 5", "#### 5"),
    Reply("kimi_open", "◁think▷7 8 #### 7", "", limit=True),
    # Special tokens
    Reply("magistral", "[THINK]7[/THINK]#### 5", "#### 5"),
    Reply(
        "cohere",
        "<|START_THINKING|>7<|END_THINKING|><|START_RESPONSE|>#### 5<|END_RESPONSE|>",
        "<|START_RESPONSE|>#### 5<|END_RESPONSE|>",
    ),
    Reply(
        "sky",
        "<|begin_of_thought|>7<|end_of_thought|><|begin_of_solution|>#### 5<|end_of_solution|>",
        "<|begin_of_solution|>#### 5<|end_of_solution|>",
    ),
    Reply("medgemma", "<unused94>thought\n7 8<unused95>#### 5", "#### 5"),
    Reply("medgemma_open", "<unused94>thought\n7 8 #### 7", "", limit=True),
    Reply("gemma4", f"{G}7 8, so it may be 9<channel|>It is 5.", "It is 5."),
    Reply("gemma4_open", f"{G}maybe #### 5 or #### 6", "", limit=True),
    Reply("gemma4_two_open", f"{G}7<channel|>#### 5{G}8", ""),
    Reply("apertus", "<|inner_prefix|>first #### 7<|inner_suffix|>#### 5", "#### 5"),
    Reply("pangu", "[unused16]first #### 7[unused17]#### 5", "#### 5"),
    Reply("solar", "<|think|>first #### 7<|end|><|begin|>assistant<|content|>#### 5", "#### 5"),
    Reply("solar_open", "<|think|>first #### 7", "", limit=True),
    Reply("hyperclova", "/think\nfirst #### 7<|im_end|>\n<|im_start|>assistant\n#### 5", "#### 5"),
    Reply(
        "chatml",
        "#### 5<|im_end|>\n<|im_start|>assistant\n9",
        "#### 5<|im_end|>\n<|im_start|>assistant\n9",
        traced=False,
    ),
    Reply("harmony", f"{H}7 8{END}{F}#### 5", "#### 5"),
    Reply(
        "harmony_channels",
        f"{H}7{END}<|channel|>commentary<|message|>8{END}{F}#### 5<|return|>",
        "#### 5<|return|>",
    ),
    Reply("harmony_commentary", f"<|channel|>commentary<|message|>plan 8{END}{F}#### 5", "#### 5"),
    Reply("harmony_open", f"{H}7 #### 5", "", limit=True),
    Reply("harmony_two", f"{H}7{END}{F}#### 6{END}{H}8{END}{F}#### 5", "#### 5"),
    Reply("harmony_two_open", f"{H}7{END}{F}#### 6{END}{H}8 or 9", ""),
    Reply("harmony_final", f"{F}#### 5", "#### 5"),
    Reply("harmony_json", f'{H}7{END}<|channel|>final <|constrain|>json<|message|>{{"a": 5}}', '{"a": 5}'),
    # Special tokens that the server has dropped
    Reply("dropped", "analysis7 8 it isassistantfinal#### 5", "#### 5"),
    Reply("dropped_prose", "analysisWe need 7.assistantfinalThe answer is 5.", "The answer is 5."),
    Reply("dropped_tool", 'analysisCall.assistantcommentary to=f json{"a": 7}assistantfinal#### 5', "#### 5"),
    Reply("dropped_commentary", "commentaryI will add.assistantfinal#### 5", "#### 5"),
    Reply("dropped_two", "analysis7assistantfinal#### 6assistantanalysis8assistantfinal#### 5", "#### 5"),
    Reply("dropped_line", "analysisIt is 7.\nassistantfinal**5**", "**5**"),
    Reply("dropped_open", "analysisWe need 7, or #### 7", "", limit=True),
    Reply("dropped_two_open", "analysis7assistantfinal#### 5assistantanalysisIs it 9", "", limit=True),
    Reply("dropped_ended", "analysisWe need #### 7", "analysisWe need #### 7", traced=False, marked=True),
    Reply(
        "dropped_mention",
        "analysisSo.assistantfinalThe assistantfinal token: 5",
        "The assistantfinal token: 5",
    ),
    Reply(
        "dropped_headless",
        "We need 7.assistantfinal#### 5",
        "We need 7.assistantfinal#### 5",
        traced=False,
        marked=True,
    ),
    Reply("dropped_gemma", "thought\n7 8\n#### 5", "thought\n7 8\n#### 5", traced=False, marked=True),
    # Words
    Reply("granite", "Here is my thought process: #### 7, no\n\nHere is my response: #### 5", "#### 5"),
    Reply("granite_short", "Here's my thought process: 7\n\nHere's my response: #### 5", "#### 5"),
    Reply("granite_open", "Here is my thought process: maybe #### 5", "", limit=True),
    Reply(
        "granite_answer",
        "Here is my thought process: 2 + 3. #### 5",
        "Here is my thought process: 2 + 3. #### 5",
        traced=False,
        marked=True,
    ),
    # Tags that no model is known to have
    Reply(
        "unknown",
        "<inner_thought>7</inner_thought>#### 5",
        "<inner_thought>7</inner_thought>#### 5",
        traced=False,
        marked=True,
    ),
    Reply(
        "unknown_token",
        "<|thinking|>7<|/thinking|>#### 5",
        "<|thinking|>7<|/thinking|>#### 5",
        traced=False,
        marked=True,
    ),
    # Beside a reasoning that the server gives apart
    Reply("apart", "#### 5", "#### 5", apart="7 8 9"),
    Reply("apart_tag", "</think>\n#### 5", "#### 5", apart="7 8 9"),
    Reply("apart_twice", "<think>7 8 9</think>\n#### 5", "#### 5", apart="7 8 9"),
    Reply("apart_twice_bare", f"{LONG}\n\n#### 5", "#### 5", apart=LONG),
    Reply("apart_same_word", "5\n#### 5", "5\n#### 5", apart="5"),
    Reply("apart_harmony", f"{F}#### 5", "#### 5", apart="7"),
    Reply("apart_open", "<think>7 and", "", apart="7", limit=True),
    Reply("apart_cut", "So far #### 5", "So far #### 5", apart="7", limit=True),
    Reply("apart_alone", "", "", apart="#### 5", limit=True),
)
