"""Rows of every Guru file by the published schema, in both of its variants. All content is made up."""

import base64
import gzip
import json
from typing import Any

BOX = " Please output the final answer within \\boxed{}."
FILES: dict[str, list[tuple[str, str, str, Any, dict[str, Any]]]] = {
    # file name: (data_source, ability, question, ground truth, extra_info)
    "math__combined_54.4k": [
        (
            "math__merged_deduped_dapo_or1_dataset",
            "math",
            "A jar holds 17 red and 12 blue beads. How many beads are there?" + BOX,
            "29",
            {"reward_metric": "default", "original_question": "How many beads?"},
        ),
        (
            "math__deepscaler_preview",
            "math",
            "Halve three quarters." + BOX,
            r"\frac{3}{8}",
            {"reward_metric": "default"},
        ),
    ],
    "codegen__leetcode2k_1.3k": [
        (
            "codegen__leetcode2k",
            "codegen",
            "Write `double(n)` that returns twice its argument, in a python fence.",
            json.dumps({"functional": "assert double(4) == 8"}),
            {"prefix": "import math\n", "reference": "def double(n):\n    return 2 * n"},
        ),
    ],
    "codegen__livecodebench_440": [
        (
            "codegen__livecodebench",
            "codegen",
            "Read a number and print its successor.",
            json.dumps({"inputs": ["3\n", "9\n"], "outputs": ["4\n", "10\n"]}),
            {"question_title": "Successor", "difficulty": "easy"},
        ),
    ],
    "codegen__primeintellect_7.5k": [
        (
            "codegen__primeintellect",
            "codegen",
            "Read two words and print them joined.",
            json.dumps({"inputs": ["ab cd\n"], "outputs": ["abcd\n"]}),
            {"dataset": "primeintellect"},
        ),
    ],
    "codegen__taco_8.8k": [
        (
            "codegen__taco",
            "codegen",
            "Read n and print the sum of 1 to n.",
            json.dumps({"inputs": ["4\n"], "outputs": ["10\n"]}),
            {"dataset": "taco"},
        ),
    ],
    "logic__arcagi1_111": [
        (
            "simulation__arcagi1",
            "reasoning",
            "Input: [[1,0]] Output: [[0,1]]. Input: [[2,0]]. Answer in <answer> tags.",
            [[0, 2]],
            {},
        ),
    ],
    "logic__arcagi2_190": [
        (
            "simulation__arcagi2",
            "reasoning",
            "Input: [[3],[0]] Output: [[0],[3]]. Input: [[5],[0]]. Use <answer> tags.",
            [[0], [5]],
            {},
        ),
    ],
    "logic__barc_1.6k": [
        (
            "simulation__barc",
            "reasoning",
            "Every cell becomes 7: [[1,2]]. Answer in <answer> tags.",
            [[7, 7]],
            {},
        ),
    ],
    "logic__graph_logical_1.2k": [
        (
            "logic__graph_logical_dataset",
            "logical_reasoning",
            "qopaz leads to ridun, ridun to velmo. Two steps from qopaz? <answer> </answer>",
            "velmo",
            {},
        ),
    ],
    "logic__ordering_puzzle_1.9k": [
        (
            "logic__ordering_puzzle_dataset",
            "logical_reasoning",
            "The gull is left of the tern, the tern left of the kite. <answer> </answer>",
            ["gull", "tern", "kite"],
            {},
        ),
    ],
    "logic__zebra_puzzle_1.3k": [
        (
            "logic__zebra_puzzle_dataset",
            "logical_reasoning",
            "Two houses, one cat, one dog; the cat is in house 2. <answer> {...} </answer>",
            {"header": ["House", "Pet"], "rows": [["1", "dog"], ["2", "cat"]]},
            {},
        ),
    ],
    "simulation__codeio_3.7k": [
        (
            "simulation__codeio",
            "coding-inference",
            "def f(n): return {'twice': 2 * n}. The input is 6. Give ```json```.",
            '"output": {"twice": 12}',
            {},
        ),
    ],
    "stem__web_3.6k": [
        (
            "stem_web",
            "QA",
            "What gas do plants take in for photosynthesis?" + BOX,
            "carbon dioxide",
            {"question": "What gas do plants take in?"},
        ),
    ],
    "table__hitab_4.3k": [
        (
            "table__hitab",
            "table",
            "| town | pop |\n| Ael | 30 |\n| Bor | 40 |\nWhich towns are listed?" + BOX,
            "Ael|Bor",
            {},
        ),
    ],
    "table__multihier_1.5k": [
        (
            "table__multihier",
            "table",
            "| year | 2001 | 2002 |\n| rain | 8 | 9 |\nRain in both years together?" + BOX,
            "17",
            {},
        ),
    ],
}


def row(name: str, index: int, compressed: bool = False) -> dict[str, Any]:
    """The row at a place of a file; `compressed` is the second published variant."""
    source, ability, question, truth, info = FILES[name][index]
    info = {"split": "train", "index": index, **info}
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": question}],
        "ability": ability,
        "apply_chat_template": True,
        "qwen2.5_7b_pass_rate": 0.25 * (index + 1),
        "qwen3_30b_pass_rate": 0.875,
        "reward_model": {
            **({} if source == "stem_web" else {"style": "rule"}),
            "ground_truth": {"compressed": _squeeze(truth)} if compressed else truth,
        },
        "extra_info": _parts(_squeeze(info)) if compressed else info,
    }


def rows(name: str, compressed: bool = False) -> list[dict[str, Any]]:
    return [row(name, k, compressed) for k in range(len(FILES[name]))]


def _squeeze(value: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(value).encode())).decode()


def _parts(text: str) -> dict[str, str]:
    return {f"part_{k + 1}": text[k * 20 : (k + 1) * 20] for k in range((len(text) + 19) // 20)}
