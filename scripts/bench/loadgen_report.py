"""Report of scripts/bench/loadgen: compares results with targets. In: the turns of every tool. Out: text."""
import statistics

from loadgen_tools import LOAD_CORE, OURS, PERCENTILES, SERVER_CORE

TOLERANCE = 0.02
LAG_TARGET, CPU_TARGET = 0.5, 1.3


def median(turns, figure):
    values = [turn[figure] for turn in turns if turn.get(figure) is not None]
    return statistics.median(values) if values else None


def each(turns, figure, form):
    return " ".join(format(turn[figure], form) if turn.get(figure) is not None else "-" for turn in turns)


def judge(cells, lags, cpu):
    """What the targets say; `None` where something was not measured. A part that was left out has no line."""
    found = []
    for name in OURS if cells else ():
        worst = [abs(median(cell["turns"][name], p) / cell["truth"][p] - 1) if median(cell["turns"][name], p) else None
                 for cell in cells for p in PERCENTILES]
        found.append({"what": f"{name}'s p50, p95 and p99 off the truth, at worst", "unit": "share", "target": TOLERANCE,
                      "value": None if None in worst else max(worst)})
    for lag in lags:
        mine = median(lag["turns"]["tierlab"], "lag_p99_us")
        for peer in ("mlperf-loadgen", "perf_analyzer"):
            theirs = median(lag["turns"].get(peer, []), "lag_p99_us")
            found.append({"what": f"send lag p99 at {lag['rate']}/s over {peer}'s", "unit": "ratio", "target": LAG_TARGET,
                          "value": mine / theirs if mine is not None and theirs else None})
    if cpu:
        mine, theirs = (median(cpu["turns"][name], "us_per_request") for name in ("tierlab", "goose"))
        found.append({"what": f"CPU per request at {cpu['rate']}/s over plain goose's", "unit": "ratio", "target": CPU_TARGET,
                      "value": mine / theirs if mine and theirs else None})
    return found


def cell_lines(cell):
    truth = cell["truth"]
    yield ""
    yield f"{cell['script']} at {cell['rate']}/s for {cell['seconds']:g} s"
    yield f"  {'':16} {'p50 ms':>9} {'':>8} {'p95 ms':>9} {'':>8} {'p99 ms':>9} {'':>8} {'requests':>9} {'failed':>7}"
    yield "  " + f"{'truth':16}" + "".join(f" {truth[p] / 1e3:9.2f} {'':8}" for p in PERCENTILES).rstrip()
    for name, turns in cell["turns"].items():
        if median(turns, "p50_us") is None:
            yield f"  {name:16} {turns[0].get('not_run', 'too few requests for percentiles')}"
            continue
        line = f"  {name:16}"
        for p in PERCENTILES:
            value = median(turns, p)
            line += f" {value / 1e3:9.2f} {(value / truth[p] - 1) * 100:+7.1f}%" if value else f" {'n/a':>9} {'':8}"
        yield line + f" {median(turns, 'requests'):9.0f} {median(turns, 'failed'):7.0f}"


def text(result):
    env = result["environment"]
    lines = [f"{env['cpu']}, {env['cores']} cores; Linux {env['kernel']}; server on core {SERVER_CORE}, tools on core {LOAD_CORE}",
             f"{env['date']}; rounds: {result['rounds']}, of send lag and CPU {result['lag_rounds']}; load average {env['load_average_at_start'][0]:.1f} before"]
    lines += [f"missing: {name}: {reason}" for name, reason in result["missing"].items()]
    for cell in result["cells"]:
        lines += cell_lines(cell)
    if result["lags"]:
        lines += ["", "send lag in us (schedule to send)", f"  {'rate':>6} {'tool':16} {'p50':>9} {'p99':>9}  p99 of each turn"]
    for lag in result["lags"]:
        for name, turns in lag["turns"].items():
            p50, p99 = (median(turns, figure) for figure in ("lag_p50_us", "lag_p99_us"))
            lines.append(f"  {lag['rate']:6} {name:16} " + (f"{p50:9.0f} {p99:9.0f}  {each(turns, 'lag_p99_us', '.0f')}"
                                                            if p99 is not None else turns[0].get("not_run", "none")))
    if result["cpu"]:
        lines += ["", f"CPU in us per request at {result['cpu']['rate']}/s", f"  {'tool':16} {'median':>9}  each turn"]
        for name, turns in result["cpu"]["turns"].items():
            value = median(turns, "us_per_request")
            lines.append(f"  {name:16} " + (f"{value:9.1f}  {each(turns, 'us_per_request', '.1f')}" if value is not None
                                            else turns[0]["not_run"]))
    lines.append("")
    for line in result["targets"]:
        if line["value"] is None:
            lines.append(f"{line['what']}: not measured (target at most {line['target']:g})")
            continue
        shown = f"{line['value'] * 100:.1f} %" if line["unit"] == "share" else f"{line['value']:.2f}"
        target = f"{line['target'] * 100:g} %" if line["unit"] == "share" else f"{line['target']:g}"
        lines.append(f"{line['what']}: {shown}; target at most {target}: {'met' if line['value'] <= line['target'] else 'missed'}")
    return "\n".join(lines) + "\n"
