"""The transport that NIXL was asked for is not there."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule, value

RULE = Rule(
    name="nixl-backend-missing",
    category="plugins",
    title="The transport (backend) that NIXL was asked for is not there",
    may_cause=("no-kv-transfer",),
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge what NIXL says of its plugins."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    name = next((str(name) for notice in errors if (name := value(notice, "backend"))), "")
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"NIXL has no backend {name}" if name else f"NIXL cannot use its backend: {errors[0].message}",
        cause="its plugin is not installed where NIXL looks for it, a library that it needs (libucp, libfabric) is not "
        "found, or both are of different releases",
        stops="KV caches cannot be moved between servers",
        fix=(
            "python -c 'import nixl._api as n; print(n.nixl_agent(\"test\").get_plugin_list())'   # which ones are "
            "there?",
            "NIXL_PLUGIN_DIR=<folder of libplugin_UCX.so>; ldd <folder>/libplugin_UCX.so | grep 'not found'",
            "pip show nixl; pip list | grep -i nixl   # one release, and built for the CUDA of this image",
            "NIXL_LOG_LEVEL=debug   # where NIXL looks, and what it loads",
        ),
        confirm="Check whether the server moves KV caches another way.",
    )
