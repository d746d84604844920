"""The linter finds every planted defect, by kind, and nothing in clean rows."""

import json
from collections import Counter

import pytest
from cases import records

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out, rows
from rlkit.data.check import lint
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.models.ladder import byte_tokenizer
from rlkit.types import Task


def story(k: int) -> str:
    """A problem in words of its own."""
    return f"What is {k} times {3 * k + 7}? Please output the final answer within \\boxed{{}}."


def row(k: int, text: str | None = None, **change) -> dict:
    ask = [{"role": "user", "content": story(k) if text is None else text}]
    content = {"data_source": "math__merged_deduped_dapo_or1_dataset", "prompt": ask, "ability": "math"}
    return {**content, **truth(str(4 * k + 11)), "extra_info": {"index": k}, **change}


def truth(value) -> dict:
    return {"reward_model": {"style": "rule", "ground_truth": value}}


HELD_OUT = [row(k) for k in range(2000, 2040)]
CLEAN = [row(k) for k in range(300)]


PLANTED: dict[str, list] = {}
for _case in records("data_planted"):
    PLANTED.setdefault(_case["check"], []).append(_case)


def planted(check: str, k: int, which: int = 0) -> dict:
    """A defective row of a check, of a number k that no clean row has."""
    case = PLANTED[check][which % len(PLANTED[check])]
    other, text = k - 1000, case["asks"]
    texts = {"OWN": story(k), "OTHER": story(other), "HELD": story(2000 + k % 40)}
    for name, ask in {**texts, "WIDE": story(other).replace(" ", "\n ")}.items():
        text = text.replace(name, ask)
    made = json.dumps({**row(k, text), **case["change"]}).replace('"SAME"', f'"{4 * other + 11}"')
    return {name: value for name, value in json.loads(made).items() if name not in case["without"]}


def lint_rows(tmp_path, content, **options):
    path, tests = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
    path.write_text("\n".join(map(json.dumps, content)))
    tests.write_text("\n".join(map(json.dumps, HELD_OUT)))
    return lint([path], held_out=[tests], **options)


def test_clean_rows_have_no_findings_and_no_rows_are_an_error(tmp_path):
    report = lint_rows(tmp_path, CLEAN, tokenizer=byte_tokenizer(), score=True)
    assert report.findings == [] and report.exit_status == 0 and report.rows == 300
    (tmp_path / "a.jsonl").write_text("\n\n")
    report = lint([tmp_path / "a.jsonl"])
    (finding,) = report.findings
    assert (finding.check, finding.detail, report.exit_status) == ("schema", "no rows", 2)
    with pytest.raises(UserError, match="There is no file"):
        lint([tmp_path / "absent.parquet"])


def test_planted_defects_are_found_by_kind(tmp_path):
    content, plants = list(CLEAN), []
    for number in range(160):
        check = list(PLANTED)[number % len(PLANTED)]
        plants.append((check, len(content)))
        content.append(planted(check, 1000 + number, number // len(PLANTED)))
    report = lint_rows(tmp_path, content, tokenizer=byte_tokenizer(), score=True)
    found = {(f.check, f.row) for f in report.findings}
    missed = [p for p in plants if p not in found]
    assert missed == []
    assert not [f for f in report.findings if f.row < 300], "no clean row is accused"
    beside = Counter(check for check, where in found if (check, where) not in plants)
    assert set(beside) <= {"self_score", "duplicate", "conflict"}, "consequences alone"
    assert report.exit_status == 2


def test_warnings_alone_have_their_own_exit_status(tmp_path):
    report = lint_rows(tmp_path, [*CLEAN, planted("duplicate", 1005)])
    assert [f.check for f in report.findings] == ["duplicate"] and report.exit_status == 1


def test_good_rows_are_not_accused(tmp_path):
    """Truths that a model spells otherwise, and a row without a reference answer."""
    truths = ["$5$", r"\begin{pmatrix}1\\2\end{pmatrix}", r"\frac{1}{2}"]
    truths += ["6*7=42.\n#### 42", r"\\frac{5}{4}", r"\boxed{6}"]
    report = lint_rows(tmp_path, [row(k) | truth(value) for k, value in enumerate(truths)], score=True)
    assert report.findings == [] and report.ungraded == 0
    stdin = json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})
    unsolved = Task.ask("codegen__taco", story(1), stdin, ability="codegen")
    report = lint_rows(tmp_path, [unsolved.to_row(), sources.parse("lookup").task(1).to_row()], score=True)
    assert report.findings == [] and report.ungraded == 1


def test_generated_rows_of_every_domain_are_clean(tmp_path):
    kinds = ["math_problems", "arithmetic", "zebra", "arc", "programs", "code_io", "string_trace", "tables"]
    data = {"train": [*kinds, "lookup", "formulas"], "train_batch_size": 300, "train_max_samples": 1200}
    content = {"data": data, "trainer": {"total_training_steps": 4}, "evaluation": {"size": 150}}
    config = RunConfig.model_validate(content)
    tests = held_out(config)
    rows.write(tmp_path / "a.parquet", [t for b in TaskStream(config, tests) for t in b])
    rows.write(tmp_path / "b.parquet", tests)
    report = lint([tmp_path / "a.parquet"], held_out=[tmp_path / "b.parquet"])
    assert report.rows == 1200 and report.findings == []


def test_a_repeated_problem_of_an_environment_is_told_by_its_truth(tmp_path):
    source = sources.parse({"kind": "environment", "environment": {"kind": "mathematics"}})
    same = [source.task(k) for k in range(6)]
    assert len({t.problem for t in same}) == len({t.id for t in same}) == 6
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(t.to_row()) for t in same))
    checks = {f.check for f in lint([tmp_path / "rows.jsonl"]).findings}
    assert not checks & {"duplicate", "conflict", "held_out"}


def test_control_tokens_are_those_of_the_tokenizer(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[CALL]"]})
    content = [row(1, "Say [CALL] and the number of letters in it, as a number, " + story(1)), row(2)]
    found = lint_rows(tmp_path, content, tokenizer=tokenizer).findings
    assert [f.row for f in found if f.check == "control"] == [0]


def test_truths_of_one_prompt_that_differ_in_spelling_alone_are_a_duplicate(tmp_path):
    truths = ["49", " 49 ", r"\\frac{19}{165}", r"\frac{19}{165}", r"\sqrt{2} - 1", r"\\sqrt{2} - 1"]
    truths += ["7", "8"]
    content = [row(k, story(k // 2)) | truth(value) for k, value in enumerate(truths)]
    found = {f.row: (f.check, f.detail) for f in lint_rows(tmp_path, content).findings}
    wanted = dict.fromkeys((1, 3, 5), "duplicate") | {7: "conflict"}
    assert {row: check for row, (check, _) in found.items()} == wanted
    assert found[3][1] == "the same as train.jsonl, row 2"
    assert found[7][1] == 'ground truth "8", but "7" in train.jsonl, row 6'
