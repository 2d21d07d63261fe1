"""The folder deploy/: what its files name is there, and Dagster and Kubernetes' own client take them as they stand.

Neither Docker nor a cluster is at hand here. The compose file's commands are run on a real PostgreSQL in test_postgres.
"""

import itertools
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pytest
import yaml

from oloproof_dagster import build_definitions
from oloproof_dagster.definitions import EXAMPLE
from oloproof_dagster.local_run.instance import DAGSTER_YAML
from tests.support import ROOT
from tests.support.pages import SHELLS, blocks, check_command, commands

DEPLOY = ROOT / "deploy"

FROM_POSTGRES_ENV = {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB"}
SECRETS = {"oloproof-postgres": "postgres.env", "oloproof-agent": "agent.env"}
"""The secrets of the cluster, and the file that docs/deploy.md makes each of."""


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def services() -> dict[str, Any]:
    return dict(read("compose.yaml")["services"])


def own_services() -> dict[str, Any]:
    """Those that run the project's image."""
    return {name: each for name, each in services().items() if not each["image"].startswith("postgres:")}


def instructions(*kinds: str) -> list[str]:
    """The Dockerfile's lines of a kind, continuations joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
    return [line.partition(" ")[2] for line in text.splitlines() if line.partition(" ")[0] in kinds]


def image_environment() -> dict[str, str]:
    return dict(word.split("=", 1) for line in instructions("ENV") for word in shlex.split(line))


def variables(tree: Any) -> Iterator[str]:
    """The environment variables that a file of Dagster's reads."""
    if isinstance(tree, dict):
        if set(tree) == {"env"}:
            yield tree["env"]
        for value in tree.values():
            yield from variables(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from variables(value)


def names_in(example: str) -> set[str]:
    return set(re.findall(r"^([A-Z_]+)=", (DEPLOY / example).read_text("utf-8"), re.M))


def check_program(words: Sequence[str]) -> None:
    """That a command line is one of Dagster's, with options that it has."""
    from dagster._cli import create_dagster_cli
    from dagster._daemon.cli import create_dagster_daemon_cli
    from dagster_webserver.cli import create_dagster_webserver_cli

    programs = {
        "dagster": create_dagster_cli,
        "dagster-daemon": create_dagster_daemon_cli,
        "dagster-webserver": create_dagster_webserver_cli,
    }
    command: click.Command = programs[words[0]]()
    args = [word.replace(image_environment()["DAGSTER_HOME"], str(DEPLOY)) for word in words[1:]]
    while isinstance(command, click.Group):
        command = command.commands[args.pop(0)]
    command.make_context(str(command.name), args)


# The instance on one server


def test_both_instances_keep_what_the_command_line_writes_into_its_own() -> None:
    own = yaml.safe_load(DAGSTER_YAML)
    for settings in (read("dagster.yaml"), read("k8s/dagster.yaml")):
        for block in own:
            assert own[block].items() <= settings[block].items()


def test_every_variable_that_dagster_reads_is_set_in_every_service_of_the_image() -> None:
    needed = {*variables(read("dagster.yaml")), *variables(read("workspace.yaml"))}
    assert names_in("postgres.env.example") == FROM_POSTGRES_ENV
    for service in own_services().values():
        assert "postgres.env" in service["env_file"]
        assert needed <= image_environment().keys() | service["environment"].keys() | FROM_POSTGRES_ENV


# The compose file


def test_what_the_compose_file_names_is_there() -> None:
    declared = read("compose.yaml")
    for service in services().values():
        for mount in service.get("volumes", ()):
            assert mount.partition(":")[0] in declared["volumes"]
        for file in service["env_file"]:
            assert (DEPLOY / f"{file}.example").is_file()
        for other, waited in service.get("depends_on", {}).items():
            assert waited["condition"] in ("service_healthy", "service_completed_successfully")
            assert waited["condition"] != "service_healthy" or "healthcheck" in services()[other]
    built = services()["migrate"]["build"]
    assert ((DEPLOY / built["context"]).resolve() / built["dockerfile"]).is_file()
    assert {service["image"] for service in own_services().values()} == {services()["migrate"]["image"]}


def test_only_the_service_that_executes_holds_the_agents_secrets_and_the_evidence() -> None:
    assert [name for name, each in services().items() if "agent.env" in each["env_file"]] == ["code"]
    mounted = {name: [mount.split(":") for mount in each.get("volumes", ())] for name, each in services().items()}
    assert [name for name, each in mounted.items() if ["evidence", "/project/.oloproof"] in each] == ["code"]
    logs = {name for name, each in mounted.items() if ["logs", image_environment()["DAGSTER_LOGS"]] in each}
    assert logs == {"code", "daemon", "webserver"}


def test_nothing_is_published_but_the_pages_and_those_to_this_machine_alone() -> None:
    published = [port for each in services().values() for port in each.get("ports", ())]
    assert published == ["127.0.0.1:3000:3000"]


def test_no_file_holds_a_secret() -> None:
    for example in ("postgres.env.example", "agent.env.example"):
        lines = (DEPLOY / example).read_text("utf-8").splitlines()
        assert not [line for line in lines if re.match(r"(# )?\w*(PASSWORD|KEY|SECRET|TOKEN)\w*=.", line)]
    assert "**/*.env" in (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert not list(DEPLOY.rglob("*.env"))
    for service in services().values():
        assert not [name for name in service.get("environment", ()) if re.search("PASSWORD|KEY|SECRET|TOKEN", name)]


def test_services_and_health_checks_run_programs_that_are_there_with_options_that_they_have() -> None:
    for service in own_services().values():
        check_program(service["command"])
        kind, *check = service.get("healthcheck", {}).get("test", ("CMD", "python"))
        assert kind == "CMD"
        if check[0] != "python":
            check_program(check)


def test_what_the_page_has_typed_in_a_container_is_typed_into_a_service_that_runs() -> None:
    typed = [
        re.match(r"docker compose -f deploy/compose.yaml exec (?:-T )?(\w+) (.*)", command.line)
        for block in blocks(ROOT / "docs/deploy.md")
        if block.language in SHELLS
        for command in commands(block)
        if " exec " in command.line
    ]
    assert typed
    for found in typed:
        assert found
        assert found[1] in services().keys() - {"migrate"}
        if found[2].startswith("oloproof"):
            assert found[1] == "code"
            check_command(found[2])


# The image


def test_what_the_image_copies_is_in_the_project_with_deploy_in_it(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    (tmp_path / "deploy/wheels").mkdir(exist_ok=True)  # where docs/deploy.md has the wheel put
    for line in instructions("COPY"):
        *sources, target = line.split()
        assert target.startswith(("/", "."))
        for source in sources:
            assert (tmp_path / source).exists()


def test_the_image_installs_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (default,) = (line.partition("=")[2] for line in instructions("ARG") if line.startswith("EXTRAS="))
    assert {*default.split(","), "k8s"} <= extras.keys()


def test_the_image_installs_the_wheel_by_its_path_so_that_no_index_can_offer_another() -> None:
    (installs,) = (line for line in instructions("RUN") if "${EXTRAS}" in line)
    assert installs.startswith("set -- /wheels/oloproof_dagster-*.whl && test $# = 1 &&")
    assert installs.endswith('"$1[${EXTRAS}]"')
    assert "oloproof-dagster" not in "".join(instructions("RUN"))


def test_images_are_named_by_their_whole_version() -> None:
    (python,) = (line.partition("=")[2] for line in instructions("ARG") if line.startswith("PYTHON="))
    assert re.match(r"\d+\.\d+\.\d+-", python)
    (database,) = {each["image"] for each in services().values()} - {each["image"] for each in own_services().values()}
    assert re.fullmatch(r"postgres:\d+\.\d+", database)


def test_the_image_runs_as_one_who_may_write_where_volumes_are_mounted_and_nowhere_else() -> None:
    assert instructions("USER") == ["oloproof"]
    (prepared,) = (line for line in instructions("RUN") if "useradd" in line)
    made = prepared.partition("mkdir -p ")[2].partition(" &&")[0].split()
    mounts = {mount.partition(":")[2] for service in own_services().values() for mount in service.get("volumes", ())}
    assert mounts == set(made)
    assert prepared.endswith("chown -R oloproof:oloproof /dagster /project/.oloproof")


def test_the_image_starts_the_code_server_that_the_compose_file_starts() -> None:
    (command,) = map(yaml.safe_load, instructions("CMD"))
    assert command == services()["code"]["command"]
    port = command[command.index("--port") + 1]
    assert instructions("EXPOSE") == [port]
    for service in own_services().values():
        assert service["environment"]["CODE_SERVER_PORT"] == port
        assert service["environment"]["CODE_SERVER_HOST"] == "code"


# The cluster


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "k8s/services.yaml").read_text("utf-8")))


def pods() -> dict[str, dict[str, Any]]:
    """The pod of each deployment."""
    return {each["metadata"]["name"]: each["spec"]["template"] for each in manifests() if each["kind"] == "Deployment"}


def containers() -> list[dict[str, Any]]:
    found = (pod["spec"].get("initContainers", []) + pod["spec"]["containers"] for pod in pods().values())
    return list(itertools.chain.from_iterable(found))


def config_maps() -> dict[str, Any]:
    return {each["name"]: each for each in read("k8s/kustomization.yaml")["configMapGenerator"]}


def literals() -> dict[str, str]:
    return dict(each.split("=", 1) for each in config_maps()["oloproof-environment"]["literals"])


def test_kubernetes_own_client_knows_every_key_of_the_manifests() -> None:
    import kubernetes.client
    from dagster_k8s.models import k8s_model_from_dict, k8s_snake_case_dict

    for manifest in manifests():
        model = getattr(kubernetes.client, f"V1{manifest['kind']}")
        assert k8s_model_from_dict(model, k8s_snake_case_dict(model, manifest)).metadata.name


def test_what_the_cluster_names_is_there() -> None:
    account = {each["metadata"]["name"] for each in manifests() if each["kind"] == "ServiceAccount"}
    assert {name for name, pod in pods().items() if "serviceAccountName" in pod["spec"]} == {"daemon"}
    for pod in pods().values():
        assert {pod["spec"].get("serviceAccountName", "oloproof")} == account
        mounted = {volume["name"]: volume["configMap"]["name"] for volume in pod["spec"]["volumes"]}
        for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == mounted.keys()
            for source in container["envFrom"]:
                assert source.get("configMapRef", {}).get("name", "oloproof-environment") in config_maps()
                assert source.get("secretRef", {}).get("name", "oloproof-postgres") in SECRETS
        assert set(mounted.values()) <= config_maps().keys()
    for file in config_maps()["oloproof-instance"]["files"]:
        assert (DEPLOY / "k8s" / file).is_file()
    launcher = read("k8s/dagster.yaml")["run_launcher"]["config"]
    assert {launcher["service_account_name"]} == account
    assert {launcher["instance_config_map"], *launcher["env_config_maps"]} == config_maps().keys()
    assert set(launcher["env_secrets"]) == SECRETS.keys()
    assert launcher["job_namespace"] == read("k8s/kustomization.yaml")["namespace"]
    assert launcher["dagster_home"] == image_environment()["DAGSTER_HOME"]


def test_only_the_daemon_holds_a_token_of_the_cluster_and_no_container_a_capability() -> None:
    without = {name for name, pod in pods().items() if pod["spec"].get("automountServiceAccountToken") is False}
    assert without == pods().keys() - {"daemon"}
    for container in containers():
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_services_of_the_cluster_lead_to_the_ports_of_their_pods() -> None:
    for service in (each for each in manifests() if each["kind"] == "Service"):
        pod = pods()[service["metadata"]["name"]]
        assert service["spec"]["selector"] == pod["metadata"]["labels"]
        ports = [port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]]
        assert [port["targetPort"] for port in service["spec"]["ports"]] == ports
    code = next(each for each in manifests() if (each["kind"], each["metadata"]["name"]) == ("Service", "code"))
    assert literals()["CODE_SERVER_HOST"] == code["metadata"]["name"]
    assert literals()["CODE_SERVER_PORT"] == str(code["spec"]["ports"][0]["port"])


def test_containers_of_the_cluster_run_programs_that_are_there_in_the_image_that_runs_are_launched_in() -> None:
    (image,) = read("k8s/kustomization.yaml")["images"]
    assert {container["image"] for container in containers()} == {image["name"]}
    assert literals()["DAGSTER_CURRENT_IMAGE"] == f"{image['newName']}:{image['newTag']}"
    for container in containers():
        check_program(container["args"])
        if "livenessProbe" in container:
            check_program(container["livenessProbe"]["exec"]["command"])
    needed = {*variables(read("k8s/dagster.yaml")), *variables(read("workspace.yaml"))}
    assert needed <= literals().keys() | FROM_POSTGRES_ENV


@pytest.fixture
def cluster_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """The instance of the cluster, with records in a folder, and credentials in a file as there are none of a pod."""
    settings = read("k8s/dagster.yaml")
    credentials = {"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}
    credentials |= {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}], "current-context": "c"}
    (tmp_path / "credentials").write_text(yaml.safe_dump(credentials | {"users": [{"name": "c", "user": {}}]}))
    settings["run_launcher"]["config"] |= {
        "load_incluster_config": False,
        "kubeconfig_file": str(tmp_path / "credentials"),
    }
    settings["storage"] = {"sqlite": {"base_dir": str(tmp_path)}}
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def test_a_run_of_the_cluster_gets_a_pod_with_the_instance_the_secrets_and_the_resources(
    cluster_instance: dg.DagsterInstance,
) -> None:
    from dagster_k8s import K8sRunLauncher
    from dagster_k8s.job import construct_dagster_k8s_job

    launcher = cluster_instance.run_launcher
    assert isinstance(launcher, K8sRunLauncher)
    context = launcher.get_container_context_for_run(dg.DagsterRun(job_name="till"))
    job = construct_dagster_k8s_job(
        context.get_k8s_job_config(job_image=literals()["DAGSTER_CURRENT_IMAGE"], run_launcher=launcher),
        args=["dagster"],
        job_name="run",
        user_defined_k8s_config=context.run_k8s_config,
    )
    (container,) = job.spec.template.spec.containers
    assert container.image == "registry.example.com/oloproof-project:1"
    assert job.spec.ttl_seconds_after_finished == 86400
    assert container.security_context.capabilities.drop == ["ALL"]
    assert container.security_context.allow_privilege_escalation is False
    assert container.resources.requests == {"cpu": "1", "memory": "2Gi"}
    assert {each.secret_ref.name for each in container.env_from if each.secret_ref} == SECRETS.keys()
    assert [mount.mount_path for mount in container.volume_mounts] == ["/dagster/dagster.yaml"]
    assert ("DAGSTER_HOME", "/dagster") in [(each.name, each.value) for each in container.env]


def test_a_project_takes_the_executor_that_gives_every_step_a_pod() -> None:
    from dagster_k8s import k8s_job_executor

    definitions = build_definitions(EXAMPLE, executor=k8s_job_executor)
    dg.Definitions.validate_loadable(definitions)
    job = definitions.resolve_job_def("refund_desk_release_run")
    assert job.executor_def.name == "k8s"
    config: Mapping[str, Any] = {"execution": {"config": {"max_concurrent": 4, "step_k8s_config": {}}}}
    assert dg.validate_run_config(job, config)
