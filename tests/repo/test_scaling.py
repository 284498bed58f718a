"""The examples for clusters are well-formed, and name options that there are."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from pytest_touchstone.core.settings import SET, settings_table
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from tests.support.places import ROOT

FOLDER = ROOT / "docs" / "scaling"
EXAMPLES = sorted(path for path in FOLDER.iterdir() if path.is_file())


def test_examples_are_well_formed_and_their_options_exist() -> None:
    known = {SET} | {row.long_flag for row in settings_table().values() if row.option}
    faults = []
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".sh":
            well_formed = subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
        else:
            well_formed = all(isinstance(document, dict) for document in yaml.safe_load_all(text))
        if not well_formed:
            faults.append(path.name)
        faults += [f"{path.name}: {flag}" for flag in set(re.findall(r"--eval-[a-z-]+", text)) - known]
    assert not faults


def test_an_indexed_job_has_as_many_completions_as_shards() -> None:
    (job,) = yaml.safe_load_all((FOLDER / "kubernetes.yml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (
        f" --eval-shard $((JOB_COMPLETION_INDEX + 1))/{job['spec']['completions']} "
        in container["command"][-1]
    )
    assert job["spec"]["completionMode"] == "Indexed"


def test_a_job_of_kuberay_has_its_replicas_on_nodes_with_gpus_and_their_weights() -> None:
    (job,) = yaml.safe_load_all((FOLDER / "kuberay.yml").read_text(encoding="utf-8"))
    words = job["spec"]["entrypoint"].split()
    assert target_of(words[words.index("--eval-engine") + 1]).count is None  # one for each accelerator
    cluster = job["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    checkpoint = Path(words[words.index("--checkpoint") + 1])
    for group in (head, workers):
        (container,) = group["template"]["spec"]["containers"]
        mounted = {one["name"]: Path(one["mountPath"]) for one in container["volumeMounts"]}
        assert checkpoint.is_relative_to(mounted["models"])
        assert set(mounted) == {one["name"] for one in group["template"]["spec"]["volumes"]}
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (needed,) = project["optional-dependencies"]["ray"]
    assert cluster["rayVersion"] in Requirement(needed).specifier


SAVED = {"results/saved", "results/baselines"}
MERGE = "touchstone merge shards --gate --output results"


def test_a_matrix_on_github_has_a_checkpoint_and_what_it_is_held_against() -> None:
    (workflow,) = yaml.safe_load_all((FOLDER / "github.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert " @ git+https://" in workflow["env"]["INSTALL"]
    assert (jobs["shard"]["needs"], jobs["gate"]["needs"]) == ("train", "shard")
    for name in ("shard", "gate"):
        installs = [step["run"] for step in jobs[name]["steps"] if "pip install" in step.get("run", "")]
        assert installs == ['pip install "$INSTALL"']
    (kept,) = [step["with"] for step in jobs["train"]["steps"] if "upload-artifact" in step.get("uses", "")]
    (taken,) = [
        step["with"] for step in jobs["shard"]["steps"] if "download-artifact" in step.get("uses", "")
    ]
    assert kept == taken
    assert any(f"--checkpoint {taken['path']} " in step.get("run", "") for step in jobs["shard"]["steps"])
    restore, save = (
        step["with"] for step in jobs["gate"]["steps"] if "actions/cache" in step.get("uses", "")
    )
    assert set(restore["path"].split()) == set(save["path"].split()) == SAVED
    assert save["key"].startswith(restore["restore-keys"])
    assert MERGE in [step.get("run") for step in jobs["gate"]["steps"]]


def test_parallel_jobs_on_gitlab_have_a_checkpoint_and_what_it_is_held_against() -> None:
    (jobs,) = yaml.safe_load_all((FOLDER / "gitlab.yml").read_text(encoding="utf-8"))
    assert " @ git+https://" in jobs["variables"]["INSTALL"]
    assert jobs["train"]["artifacts"]["paths"] == ["checkpoint/"]
    assert (jobs["shard"]["needs"], jobs["gate"]["needs"]) == (["train"], ["shard"])
    install, scored = jobs["shard"]["script"]
    assert "--checkpoint checkpoint " in scored
    assert jobs["gate"]["script"] == [install, MERGE]
    assert set(jobs["gate"]["cache"]["paths"]) == SAVED
    policies = {rule["variables"]["CACHE"] for rule in jobs["workflow"]["rules"]}
    assert (jobs["gate"]["cache"]["policy"], policies) == ("$CACHE", {"pull", "pull-push"})


def test_each_example_is_on_the_page() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert all(f"(scaling/{path.name})" in page for path in EXAMPLES)
