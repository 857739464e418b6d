"""What progress says of a run: never a share without what it is a share of."""

from io import StringIO

from fedlama.run.progress import progress
from fedlama.training import Record


def record(step, *, cost=1.0, uplink_share=None, accuracy=None, metrics=None):
    return Record(
        round=1,
        step=step,
        cycle=1,
        due=[],
        intervals=[],
        discrepancy=[],
        loss=2.0,
        accuracy=accuracy,
        uplink_bytes=1,
        downlink_bytes=1,
        cost=cost,
        metrics=metrics or {},
        uplink_share=uplink_share,
    )


def line(*begin, **values):
    stream = StringIO()
    with progress(24, stream=stream) as display:
        display.begin(*begin)
        display(record(24, **values))
    return stream.getvalue()


def test_a_share_names_what_it_is_of():
    assert "sent 39% of FedAvg(6) ·" in line("FedLAMA(6, 4)", 6, cost=0.389, uplink_share=0.389)
    assert "sent 100% of FedAvg(24) ·" in line("FedAvg(24)", 24, uplink_share=1.0)


def test_in_a_comparison_it_is_a_share_of_the_baseline():
    # Of 24 steps, FedAvg(24) averages once and FedAvg(6) four times.
    assert "sent 25% of FedAvg(6) ·" in line("FedAvg(24)", 24, 6, uplink_share=1.0)


def test_a_coded_run_tells_its_bytes_and_not_its_averages():
    assert "sent 1.2% of FedAvg(6) ·" in line("frugal", 6, cost=1.0, uplink_share=0.0123)


def test_without_an_interval_nothing_is_said_of_it():
    assert "sent" not in line("a policy", uplink_share=1.0)


def test_a_metric_has_its_own_name():
    assert "· accuracy 50.0% ·" in line("FedAvg(6)", 6, accuracy=0.5)
    text = line("FedAvg(6)", 6, metrics={"rmse": 0.123456})
    assert "· rmse 0.1235 ·" in text
    assert "accuracy" not in text
