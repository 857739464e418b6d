"""What is said of a group: its title, its folder, and what was scaled down."""

from __future__ import annotations

from fedlama.paper.recipe import Scale, ScaleName, TableGroup, TableRecipe, scale_of
from fedlama.paper.scaling import Changes, alpha_at
from fedlama.paper.sources import Source
from fedlama.run.config import Config
from fedlama.study.settings import Study

PAPER_CLIENTS = 128
AT_A_TIME = " at a time"
SMOKE = "Smoke test"
ONE_SEED = "one seed"
SMOKE_NOTE = (
    f"{SMOKE}, no result: tiny runs on the embedded digits show that the table can be made; what they reach means "
    f"nothing."
)


def folder_of(table: str, group: TableGroup, scale: ScaleName, config: Config) -> str:
    """Tables and figures that need the same runs name the same folder.

    Arguments:
        table: The name of the table.
        group: One of its groups.
        scale: How much of it.
        config: Of its first setting.
    """
    partition = config.partition
    spread = str(partition.kind)
    if partition.kind == "dirichlet":
        spread = f"dirichlet{partition.alpha:g}"
    start = f"{config.data.name}-{spread}"

    window = config.participation.window
    if scale == "paper":
        # Its learning rates differ between tables.
        return f"{table}/{start}-active{group.active:g}-window{window}"

    clients = partition.clients or "all"
    active = config.participation.active
    return f"{start}-{active}of{clients}-window{window}"


def title_of(
    common: Scale, group: TableGroup, scale: ScaleName, config: Config, source: Source
) -> str:
    """What a picture by itself must say: the paper's group, and what stands in for its data, model, clients or α.

    Arguments:
        common: What the tables of its data set have in common.
        group: The paper's lines.
        scale: How much of it.
        config: Of its first setting.
        source: Its data.
    """
    title = common.title
    others = _stand_ins_in_title(common, scale, config, source)
    if others:
        listed = ", ".join(others)
        title += f" (here {listed})"

    percent = 100 * group.active
    title += f", {percent:.0f} % active"
    if scale != "paper":
        title += f" (here {_cohort(config, source)})"

    if group.alpha is not None:
        title += f", α = {group.alpha:g}"
        alpha = alpha_at(group, common, scale)
        if alpha != group.alpha:
            title += f" (here {alpha:g})"
    elif config.partition.kind == "iid":
        title += ", IID"

    if scale == "smoke":
        return f"{SMOKE}, no result: {title}"
    return title


def _stand_ins_in_title(
    common: Scale, scale: ScaleName, config: Config, source: Source
) -> list[str]:
    """What was trained in place of the paper's data and model."""
    name = config.data.name
    papers = common.sources[0]

    others: list[str] = []
    if name != papers:
        others.append(name)
    if scale == "cpu" and common.cpu_model is not None:
        others.append(common.cpu_model)
    if scale == "smoke":
        model = str(config.model.name)
        others.append(model)
    part = source.part_of(common)
    if part is not None:
        others.append(part)
    return others


def _cohort(config: Config, source: Source) -> str:
    active = config.participation.active
    clients = config.partition.clients
    if clients is None and source.writers is not None:
        return f"{active} of {source.writers} writers"
    if clients is None:
        return f"{active} writers{AT_A_TIME}"
    return f"{active} of {clients}"


def scaled_down(
    recipe: TableRecipe,
    group: TableGroup,
    scale: ScaleName,
    study: Study,
    changes: Changes,
    source: Source,
) -> tuple[str, ...]:
    """What differs from the paper, and what it does not say.

    Arguments:
        recipe: The table.
        group: One of its groups.
        scale: How much of it.
        study: What is run.
        changes: What the user wants otherwise.
        source: Its data.
    """
    common = scale_of(recipe.data)
    config = study.settings[0].config
    if scale == "paper":
        return (*_optimizer(config), *_stand_ins(common, source))
    if scale == "smoke":
        return (SMOKE_NOTE.removesuffix("."),)

    found: list[str] = []
    if not _is_papers_cohort(config, group):
        found.append(_who_trains(config, group, source))
    if config.train.iterations != recipe.iterations:
        found.append(
            f"{config.train.iterations:,} steps in place of {recipe.iterations:,}"
        )
    found += [
        _rates(study, common, changes),
        _decay(config),
        "no warm-up",
        *_optimizer(config),
        _seeds(group),
    ]
    if changes.precision != "float32":
        found.append(
            f"local steps in {changes.precision}; weights and averages are float32"
        )

    alpha = alpha_at(group, common, scale)
    if alpha != group.alpha:
        found.append(f"α = {alpha:g} in place of {group.alpha:g}")
    # Groups that the paper tells apart may be the same once they are scaled down.
    alphas = [alpha_at(one, common, scale) for one in recipe.group]
    if alphas.count(alpha) > 1:
        found.append(
            "groups that differ only in what was scaled down have the same runs"
        )

    if common.cpu_model is not None:
        found.append(f"the model {common.cpu_model} in place of {common.paper_model}")
    found += _stand_ins(common, source)
    return tuple(found)


def _is_papers_cohort(config: Config, group: TableGroup) -> bool:
    if config.partition.clients != PAPER_CLIENTS:
        return False
    return config.participation.active == _papers_active(group)


def _who_trains(config: Config, group: TableGroup, source: Source) -> str:
    """Clients are named once; writers are not called clients, so that the paper's are."""
    here = _cohort(config, source)
    papers = _papers_cohort(group)
    if config.partition.clients is None:
        writers = here.removesuffix(AT_A_TIME)
        return f"{writers} train at a time, in place of {papers} clients"
    return f"{here} clients train at a time, in place of {papers}"


def _papers_active(group: TableGroup) -> int:
    return round(PAPER_CLIENTS * group.active)


def _papers_cohort(group: TableGroup) -> str:
    if group.active == 1:
        return f"all {PAPER_CLIENTS}"
    return f"{_papers_active(group)} of {PAPER_CLIENTS}"


def _seeds(group: TableGroup) -> str:
    if group.seeds == 1:
        return ONE_SEED
    # A table may be drawn before all of them are finished.
    return f"{group.seeds} seeds in the recipe"


def _rates(study: Study, common: Scale, changes: Changes) -> str:
    if not changes.pilots:
        rate = study.settings[0].config.local.learning_rate
        return f"learning rate {rate:g} for every setting, {common.cpu_rate}"

    options = study.options
    rates = ", ".join(f"{rate:g}" for rate in options.learning_rates)
    return (
        f"a learning rate for each setting out of {rates}, from a pilot of {options.pilot_iterations} steps on a "
        f"validation split"
    )


def _decay(config: Config) -> str:
    steps = config.local.decay_steps
    if not steps:
        return "the rate is not divided during the run"
    listed = " and ".join(f"{step:,}" for step in steps)
    return f"the rate is divided by 10 after {listed} steps"


def _optimizer(config: Config) -> list[str]:
    """What the paper does not say: the released code has these for the CIFAR sets."""
    local = config.local
    window = config.participation.window
    if not local.momentum and not local.weight_decay:
        return [
            f"no momentum and no weight decay; the cohort changes every {window} steps"
        ]

    weight_decay = f"weight decay {local.weight_decay:g} on {local.decayed}"
    found = [f"momentum {local.momentum:g} and {weight_decay}, as in the released code"]
    if config.participation.active != 1.0:
        found.append(
            f"the cohort changes every {window} steps, and momentum begins at zero then"
        )
    # Both of its residual networks have BatchNorm.
    found.append("BatchNorm's running statistics are averaged as weights are")
    return found


def _stand_ins(common: Scale, source: Source) -> list[str]:
    found: list[str] = []
    papers = common.sources[0]
    if source.name != papers:
        found.append(f"the data set {source.name} in place of {papers}")

    part = source.part_of(common)
    if part is not None:
        found.append(part)
    return found
