"""Report of scripts/bench/server: compares results with targets. In: the turns of every server. Out: text."""
import statistics

MANY_ROWS = 32
# How a request is put: as JSON or with binary tensors, of one row or of many.
FORMS = ("json", "binary", f"json x{MANY_ROWS}", f"binary x{MANY_ROWS}")
FIGURES = ("requests_per_cpu_s", "requests_per_s", "cpu_share", "p50_us", "p99_us")
# How many times the requests per CPU second of each peer ours has to take.
TARGETS = {"naive": 1.3, "triton": 4.0, "triton-batching": 4.0, "fastapi": 8.0}
VERDICT = {None: "", True: "met", False: "missed"}


def summarise(turns, run_us):
    """Medians over the rounds, and their ratios beside the targets."""
    def median(name, form, figure):
        return statistics.median(turn[form][figure] for turn in turns[name])

    rows = []
    for name in turns:
        for form in (form for form in FORMS if form in turns[name][0]):
            rows.append({"server": name, "form": form, **{figure: median(name, form, figure) for figure in FIGURES}})
    ours = median("tierlab", "json", "requests_per_cpu_s")
    ratios = [ratio("tierlab binary", "tierlab json", "requests/CPU-s", median("tierlab", "binary", "requests_per_cpu_s") / ours,
                    at_least=1.5)]
    many = {form: median("tierlab", f"{form} x{MANY_ROWS}", "requests_per_cpu_s") for form in ("binary", "json")}
    ratios.append(ratio(f"tierlab binary x{MANY_ROWS}", f"tierlab json x{MANY_ROWS}", "requests/CPU-s",
                        many["binary"] / many["json"]))
    for name in turns:
        if name != "tierlab":
            ratios.append(ratio("tierlab json", f"{name} json", "requests/CPU-s",
                                ours / median(name, "json", "requests_per_cpu_s"), at_least=TARGETS.get(name)))
        if name.startswith("triton"):
            ratios.append(ratio("tierlab json", f"{name} json", "p99 at rate",
                                median("tierlab", "rated", "p99_us") / median(name, "rated", "p99_us"), at_most=0.5))
    rated = [{"server": name, **{figure: median(name, "rated", figure) for figure in ("p50_us", "p99_us")}}
             for name in turns if "rated" in turns[name][0]]
    alone = statistics.median(turn["alone_us"] for turn in turns["tierlab"])
    return {"servers": rows, "rated": rated, "ratios": ratios,
            "alone": {"server_p50_us": alone, "run_p50_us": run_us, "above_us": alone - run_us, "target_us": 60}}


def ratio(of, over, figure, value, at_least=None, at_most=None):
    """A ratio of medians beside its target, where it has one."""
    target, met = None, None
    if at_least is not None:
        target, met = f">= {at_least}", value >= at_least
    elif at_most is not None:
        target, met = f"<= {at_most}", value <= at_most
    return {"of": of, "over": over, "figure": figure, "ratio": value, "target": target, "met": met}


def text(result):
    env, alone = result["environment"], result["alone"]
    lines = [f"{env['cpu']}, {env['cores']} cores; Linux {env['kernel']}; ONNX Runtime {env['onnxruntime']}",
             f"{env['date']}; mlp, 1x64 FP32, concurrency {result['concurrency']}, {result['rounds']} rounds of "
             f"{result['seconds']} s; load average {env['load_average_at_start'][0]:.1f} before", "",
             f"{'server':15} {'form':10} {'req/CPU-s':>10} {'req/s':>8} {'CPU':>6} {'p50 us':>8} {'p99 us':>8}"]
    for row in result["servers"]:
        lines.append(f"{row['server']:15} {row['form']:10} {row['requests_per_cpu_s']:10.0f} {row['requests_per_s']:8.0f} "
                     f"{row['cpu_share']:6.2f} {row['p50_us']:8.0f} {row['p99_us']:8.0f}")
    lines += ["", f"at {result['rate']} requests/s in open loop {'p50 us':>15} {'p99 us':>8}"]
    for row in result["rated"]:
        lines.append(f"{row['server']:15} json {row['p50_us']:29.0f} {row['p99_us']:8.0f}")
    lines += ["", f"{'ratio':37} {'of':15} {'value':>7}  {'target':8} verdict"]
    for row in result["ratios"]:
        lines.append(f"{row['of'] + ' / ' + row['over']:37} {row['figure']:15} {row['ratio']:7.2f}  "
                     f"{row['target'] or '-':8} {VERDICT[row['met']]}".rstrip())
    lines.append(f"{'alone, above the run in process':37} {'p50 us':15} {alone['above_us']:7.0f}  "
                 f"{'<= ' + str(alone['target_us']):8} {VERDICT[alone['above_us'] <= alone['target_us']]} "
                 f"({alone['server_p50_us']:.0f} us in the server, {alone['run_p50_us']:.1f} us in process)")
    return "\n".join(lines) + "\n"
