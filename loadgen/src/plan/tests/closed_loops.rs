//! Plans of closed loops and journeys.

use super::*;

const STEP: &str = "[[journey.step]]\nname = \"a\"\nmodel = \"m\"\n";

fn closed(more: &str) -> String {
    format!("{HEAD}[[load]]\nmode = \"concurrency\"\n{more}\n")
}

fn journey(steps: &str) -> String {
    format!("{HEAD}[[journey]]\nname = \"j\"\nrates = [5]\n{steps}")
}

#[test]
fn closed_loops_are_the_product_of_batch_sizes_and_users() {
    use tierlab_load::by_goose::closed_loop::Think;
    let plan = parse(&closed(
        "users = [1, 8]\nbatch_sizes = [1, 16]\nthink_time_ms = [10, 20]",
    ))
    .unwrap();
    let loops: Vec<_> = plan
        .closed_loops
        .iter()
        .map(|one| (one.batch_size, one.users))
        .collect();
    assert_eq!(loops, [(1, 1), (1, 8), (16, 1), (16, 8)]);
    let uniform = Think::Uniform {
        least_ms: 10.0,
        most_ms: 20.0,
    };
    assert_eq!(plan.closed_loops[0].think, uniform);
    assert!(plan.loads.is_empty());
    for (text, think) in [
        ("", Think::Fixed(0.0)),
        ("think_time_ms = 2.5", Think::Fixed(2.5)),
        (
            "think_time_ms = { exponential = 50 }",
            Think::Exponential { mean_ms: 50.0 },
        ),
    ] {
        assert_eq!(
            parse(&closed(&format!("users = [2]\n{text}"))).unwrap().closed_loops[0].think,
            think
        );
    }
}

#[test]
fn nonsense_closed_loops_are_refused_by_key() {
    for (text, named) in [
        (closed(""), "`load[0].users`"),
        (closed("users = [0]"), "`load[0].users`"),
        (closed("users = [2, 2]"), "duplicate entry"),
        (closed("users = [2]\nrates = [5]"), "`load[0].rates`"),
        (closed("users = [2]\nthink_time_ms = -1"), "`load[0].think_time_ms`"),
        (closed("users = [2]\nthink_time_ms = [5, 1]"), "`load[0].think_time_ms`"),
        (closed("users = [2]\nthink_time_ms = { gauss = 1 }"), "think_time_ms"),
        (closed("users = [2]\nbatch_sizes = [0]"), "`load[0].batch_sizes`"),
        (format!("{HEAD}{LOAD}users = [2]\n"), "`load[0].users`"),
        (format!("{HEAD}{LOAD}think_time_ms = 2\n"), "`load[0].think_time_ms`"),
        (format!("{HEAD}[[load]]\nmode = \"realtime\"\n"), "`load[0].rates`"),
        (
            format!("{}[search]\nslo = \"p99 < 20 ms\"\n", closed("users = [2]")),
            "`[search]`",
        ),
        (
            format!(
                "{}[target]\nkind = \"http\"\npath = \"/x\"\nbody = '1'\nrows_per_request = 3\n",
                closed("users = [2]\nbatch_sizes = [1, 3]")
            ),
            "duplicate entry: 2 users",
        ),
    ] {
        let refused = refusal(&text);
        assert!(refused.contains(named), "{refused}");
    }
    let asked = "[question]\nslo = [\"p99 < 20 ms\"]\ndemand_rps = 100\nminimise = \"p99\"\nbudget = \"5m\"\n";
    for problem in [closed("users = [2]"), journey(STEP)] {
        let refused = refusal(&format!("{problem}{LAB}{asked}"));
        assert!(refused.contains("question"), "{refused}");
    }
}

#[test]
fn journeys_know_which_values_are_there() {
    let plan = parse(&journey(
        "[[journey.step]]\nname = \"a\"\npath = \"/u/{entity_id}\"\ntake = { v = \"/x\", w = \"\" }\n\
         [[journey.step]]\nname = \"b\"\nmodel = \"m\"\nbody = '{\"inputs\":[{\"data\":{v}}],\"id\":\"{w}\"}'\n",
    ))
    .unwrap();
    let journey = &plan.journeys[0];
    assert_eq!(journey.values, ["entity_id", "v", "w"]);
    assert!(journey.takes_entity());
    assert_eq!((journey.steps[0].available, journey.steps[1].available), (1, 3));
    assert_eq!(journey.models().collect::<Vec<_>>(), ["m"]);
    // The plan's protocol holds for all steps without one of their own.
    let over_grpc = |plan: String| parse(&plan).unwrap().speaks_grpc();
    let of_step = |protocol: &str| self::journey(&format!("{STEP}protocol = \"{protocol}\"\n"));
    assert!(!over_grpc(self::journey(STEP)) && over_grpc(of_step("grpc")));
    let all = parse(&format!("protocol = \"grpc\"\n{}", self::journey(STEP))).unwrap();
    assert!(all.journeys[0].speaks_grpc());
    let none = parse(&format!("protocol = \"grpc\"\n{}", of_step("http"))).unwrap();
    assert!(!none.journeys[0].speaks_grpc());
    // Without inputs a model is asked for the rows of an entity.
    assert!(parse(&self::journey(STEP)).unwrap().journeys[0].takes_entity());
}

#[test]
fn nonsense_journeys_are_refused_by_key() {
    let step = |more: &str| journey(&format!("[[journey.step]]\nname = \"a\"\n{more}\n"));
    for (text, named) in [
        (journey(""), "`journey[0].step"),
        (journey(&STEP.repeat(2)), "`journey[0].step[1].name`"),
        (journey(STEP).replace("[5]", "[]"), "`journey[0].rates`"),
        (journey(STEP).replace("[5]", "[5, 5]"), "duplicate entry"),
        (journey(STEP).replace("[5]", "[0.1]"), "sends nothing"),
        (journey(STEP).replace("\"j\"", "\"a b\""), "`journey[0].name`"),
        (step(""), "`journey[0].step[0].model` is missing"),
        (step("model = \"m\"\npath = \"/x\""), "not both"),
        (step("model = \"m\"\nmethod = \"GET\""), "`journey[0].step[0].method`"),
        (step("model = \"m\"\ninputs = { x = 1 }\nbody = \"{}\""), "not both"),
        (step("model = \"m\"\ninputs = { x = \"{y}\" }"), "unknown value `{y}`"),
        (
            step("model = \"m\"\ninputs = { x = { a = 1 } }"),
            "`journey[0].step[0].inputs.x`",
        ),
        (
            step("model = \"m\"\nbody = \"{later}\"\ntake = { later = \"/x\" }"),
            "unknown value `{later}`",
        ),
        (step("path = \"x\""), "`journey[0].step[0].path`"),
        (step("path = \"//evil/x\""), "`journey[0].step[0].path`"),
        (step("path = \"/x\"\nmethod = \"TRACE\""), "`journey[0].step[0].method`"),
        (
            step("path = \"/x\"\nmethod = \"GET\"\nbody = \"{}\""),
            "`journey[0].step[0].body`",
        ),
        (step("path = \"/x\"\nstatus = 9"), "`journey[0].step[0].status`"),
        (
            step("path = \"/x\"\nheaders = { Authorization = \"s\" }"),
            "credentials are not allowed",
        ),
        (
            step("path = \"/x\"\ntake = { entity_id = \"/x\" }"),
            "another value has this name",
        ),
        (step("path = \"/x\"\ntake = { v = \"x\" }"), "not a JSON pointer"),
        (
            step("path = \"/x\"\ntake = { \"v-w\" = \"/x\" }"),
            "letters, digits and `_`",
        ),
        (step("path = \"/x\"\nwhat = 1"), "what"),
        (
            step("path = \"/x\"\nprotocol = \"grpc\""),
            "`journey[0].step[0].protocol`",
        ),
        (
            step("model = \"m\"\nprotocol = \"grpc\"\nbody = '{\"inputs\":[],\"parameters\":{\"a\":1}}'"),
            "`parameters`",
        ),
        (format!("encoding = \"binary\"\n{}", journey(STEP)), "`encoding`"),
        (
            format!("{}{LOAD}[search]\nslo = \"p99 < 20 ms\"\n", journey(STEP)),
            "`[search]`",
        ),
    ] {
        let refused = refusal(&text);
        assert!(refused.contains(named), "{refused}");
    }
}
