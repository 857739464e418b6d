"""Which charts the page has, section by section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.crossings import crossings
from fedlama.report.numbers.intervals import interval_maps
from fedlama.report.page.parts import FairnessSection, NetworkSection
from fedlama.report.pictures.charts import Chart
from fedlama.report.pictures.crossings import crossing_chart
from fedlama.report.pictures.frontier import frontier_chart
from fedlama.report.pictures.intervals import interval_chart
from fedlama.report.pictures.layers import layer_chart
from fedlama.report.pictures.scores import score_charts


@dataclass(frozen=True)
class Charts:
    """The charts of a group by section, in the order in which the page has them."""

    frontier: list[Chart]
    scores: list[Chart]
    layers: list[Chart]
    crossings: list[Chart]
    intervals: list[Chart]
    network: list[Chart]
    clients: list[Chart]
    partitions: list[Chart]

    @property
    def every(self) -> list[Chart]:
        """All of them."""
        return [
            *self.frontier,
            *self.scores,
            *self.layers,
            *self.crossings,
            *self.intervals,
            *self.network,
            *self.clients,
            *self.partitions,
        ]


def charts_of(
    comparison: RunComparison,
    network: NetworkSection | None,
    clients: FairnessSection | None,
    partitions: Sequence[Chart],
    number: int,
) -> Charts:
    """The charts of one group.

    Arguments:
        comparison: Its settings.
        network: The replay, with its chart.
        clients: How clients fare by themselves, with its chart.
        partitions: How the data fell on clients.
        number: Of the group, from 1.
    """
    layers = [
        layer_chart(comparison, "aggregations"),
        layer_chart(comparison, "uplink_bytes"),
    ]
    decisions: list[Chart] = []
    for place, crossing in enumerate(crossings(comparison), start=1):
        decisions.append(crossing_chart(crossing, place))

    maps: list[Chart] = []
    for one in interval_maps(comparison):
        if not one.is_even:
            maps.append(interval_chart(one, len(maps) + 1))

    times: list[Chart | None] = []
    if network is not None:
        times.append(network.chart)
    scores_of_clients: list[Chart | None] = []
    if clients is not None:
        scores_of_clients.append(clients.chart)
    return Charts(
        frontier=_in_group([frontier_chart(comparison)], number),
        scores=_in_group(score_charts(comparison), number),
        layers=_in_group(layers, number),
        crossings=_in_group(decisions, number),
        intervals=_in_group(maps, number),
        network=_in_group(times, number),
        clients=_in_group(scores_of_clients, number),
        partitions=_in_group(partitions, number),
    )


def _in_group(charts: Sequence[Chart | None], number: int) -> list[Chart]:
    """The charts that there are, under names that no other group of the page has."""
    named: list[Chart] = []
    for chart in charts:
        if chart is None:
            continue
        name = chart.id
        if number > 1:
            name = f"group{number}-{chart.id}"
        drawing = {**chart.drawing, "group": number}
        named.append(replace(chart, id=name, drawing=drawing))
    return named
