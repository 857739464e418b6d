"""What progress says of a run: never a share without what it is a share of."""

from io import StringIO

from fedlama.run import progress as module
from fedlama.run.progress import progress
from fedlama.training import Record


def record(step, *, round=1, cost=1.0, uplink_share=None, accuracy=None, metrics=None):
    return Record(
        round=round,
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


def line(*begin, asked=None, **values):
    stream = StringIO()
    with progress(24, stream=stream) as display:
        display.begin(*begin, asked=asked)
        display(record(24, **values))
    return stream.getvalue()


def test_a_share_names_what_it_is_of():
    assert "sent 39% of FedAvg(6)" in line(
        "FedLAMA(6, 4)", 6, cost=0.389, uplink_share=0.389
    )
    assert "sent 100% of FedAvg(24)" in line("FedAvg(24)", 24, uplink_share=1.0)


def test_in_a_comparison_it_is_a_share_of_the_baseline():
    # Of 24 steps, FedAvg(24) averages once and FedAvg(6) four times.
    assert "sent 25% of FedAvg(6)" in line("FedAvg(24)", 24, 6, uplink_share=1.0)


def test_a_coded_run_tells_its_bytes_and_not_its_averages():
    assert "sent 1.2% of FedAvg(6)" in line("frugal", 6, cost=1.0, uplink_share=0.0123)


def test_a_run_that_sent_more_than_it_was_to_says_so_in_its_last_line():
    more = line("frugal", 6, asked=0.00125, uplink_share=0.00146)
    assert "sent 0.15% of FedAvg(6), asked for 0.125%" in more
    for share in (0.00994, 0.01003):
        assert "asked" not in line("frugal", 6, asked=0.01, uplink_share=share)
    assert "asked" not in line("a policy", asked=0.01, uplink_share=0.02)
    stream = StringIO()
    with progress(24, stream=stream) as display:
        display.begin("frugal", 6, asked=0.01)
        display(record(6, uplink_share=0.02, accuracy=0.5))
    assert "asked" not in stream.getvalue()


def test_without_an_interval_nothing_is_said_of_it():
    assert "sent" not in line("a policy", uplink_share=1.0)


def test_a_metric_has_its_own_name():
    assert "· accuracy 50.0%" in line("FedAvg(6)", 6, accuracy=0.5)
    text = line("FedAvg(6)", 6, metrics={"rmse": 0.123456})
    assert "· rmse 0.1235" in text
    assert "accuracy" not in text


def lines_at(monkeypatch, *told):
    """What a log of a run of 1,000 steps says at evaluations: (seconds on the clock, round, step)."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    stream = StringIO()
    with progress(1000, stream=stream) as display:
        display.begin("FedAvg(10)", 10)
        for seconds, number, step in told:
            clock[0] = seconds
            display(record(step, round=number, accuracy=0.5))
    return stream.getvalue().splitlines()


def test_what_is_left_is_said_roughly_and_not_at_the_end(monkeypatch):
    first, second, last = lines_at(
        monkeypatch, (60.0, 1, 100), (95.0, 95, 950), (100.0, 100, 1000)
    )
    assert first.endswith(" · about 9 min left")
    assert second.endswith(" · under a minute left")
    assert "left" not in last


def test_steps_before_a_resume_took_none_of_this_time(monkeypatch):
    # Step 800 is there at once; from there ten steps a minute.
    first, second = lines_at(monkeypatch, (1.0, 80, 800), (61.0, 81, 810))
    assert "left" not in first
    assert second.endswith(" · about 19 min left")
