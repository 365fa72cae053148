//! Recorded requests at their own times, ramps, and sweeps that stop, against a server that notes what arrives.

use crate::program::{Ended, Workdir, run};
use crate::scripted;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    at: Instant,
    pub(crate) line: String,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

/// Server that answers every request with `{}` after a pause, and notes it.
pub(crate) struct Noting {
    pub(crate) url: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    /// Connections accepted.
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Noting {
    pub(crate) fn start(pause: Duration) -> Self {
        Self::with(pause, false)
    }

    /// Answers one request after another if it `is_serial`, and also those that its clients have given up.
    fn with(pause: Duration, is_serial: bool) -> Self {
        let (queue, queued) = mpsc::channel::<mpsc::Sender<()>>();
        thread::spawn(move || {
            for served in queued {
                thread::sleep(pause);
                let _ = served.send(());
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&arrived);
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                accepted.fetch_add(1, Ordering::Relaxed);
                let (noted, queue) = (Arc::clone(&noted), queue.clone());
                thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = request(&mut stream) {
                        noted.lock().unwrap().push(request);
                        if is_serial {
                            let (served, is_served) = mpsc::channel();
                            queue.send(served).unwrap();
                            is_served.recv().unwrap();
                        } else {
                            thread::sleep(pause);
                        }
                        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                        if stream.get_mut().write_all(reply).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            url,
            arrived,
            connections,
        }
    }

    pub(crate) fn noted(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }
}

fn request(stream: &mut BufReader<TcpStream>) -> Option<Arrived> {
    let (mut line, mut headers, mut length) = (String::new(), String::new(), 0);
    stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let at = Instant::now();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok().filter(|read| *read > 0)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(bytes) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse().ok()?;
        }
        headers += &header;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Arrived {
        at,
        line: line.trim().to_owned(),
        headers,
        body,
    })
}

/// Plan of a sweep of `kind = "http"`, for loads and targets that follow.
fn head(arrivals: &str) -> String {
    let head = scripted::HEAD.replace("arrivals = \"constant\"", arrivals);
    format!("{head}repeats = 1\nstep_s = 2.0\n")
}

fn replay(file: &str, recorded: &str, arrival: &str, target: &str, url: &str) -> (Ended, Workdir) {
    let plan = format!(
        "{}[arrival]\nfile = \"{file}\"\n{arrival}\n[target]\nkind = \"http\"\nmetrics = []\n{target}",
        head("arrivals = \"replay\"")
    );
    let place = Workdir::new(&plan);
    std::fs::write(place.path(file), recorded).unwrap();
    (run(place.sweep(url)), place)
}

#[test]
fn a_day_of_an_access_log_is_replayed_in_two_seconds() {
    let mut log = String::new();
    for number in 0..160 {
        // A request every ten minutes, over midnight.
        let (day, minutes) = (10 + number / 144, number * 10 % 1_440);
        let time = format!("{day}/Oct/2026:{:02}:{:02}:00 +0200", minutes / 60, minutes % 60);
        writeln!(
            log,
            "::1 - - [{time}] \"GET /item/{number}?x=%20 HTTP/1.1\" 200 12 \"-\" \"curl\""
        )
        .unwrap();
    }
    let server = Noting::start(Duration::ZERO);
    let (ended, place) = replay("access.log", &log, "speed = 43200", "", &server.url);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let point = &place.run_json()["points"][0];
    assert_eq!(point["factors"]["arrivals"], "replay(access.log ×43200)");
    assert_eq!(point["repeats"][0]["scheduled"], 144);
    // The first one is sent before the measurement too.
    let mut sent = server.noted().split_off(1);
    assert_eq!(sent.len(), 159);
    // Each on a connection of its own, which a busy machine serves in another order.
    sent.sort_by_key(|request| {
        let number = request.line["GET /item/".len()..].split('?').next().unwrap();
        number.parse::<u32>().unwrap()
    });
    let mut late_ms = Vec::new();
    for (number, request) in sent.iter().enumerate() {
        assert_eq!(request.line, format!("GET /item/{number}?x=%20 HTTP/1.1"));
        assert!(
            !request.headers.to_lowercase().contains("content-type"),
            "{}",
            request.headers
        );
        let due_s = number as f64 * 600.0 / 43_200.0;
        late_ms.push(((request.at - sent[0].at).as_secs_f64() - due_s).abs() * 1e3);
    }
    late_ms.sort_by(f64::total_cmp);
    assert!(late_ms[79] < 50.0, "{late_ms:?}");
}

#[test]
fn a_refused_reply_is_named_by_the_path_of_its_request() {
    let server = Noting::start(Duration::ZERO);
    let line = |number: u32| format!("{{\"timestamp\":{number},\"path\":\"/item/{number}?key=S3CRET\"}}\n");
    let lines: String = (0..10).map(line).collect();
    let target = "[target.success]\nstatus = [201]\n";
    let (ended, _place) = replay("r.jsonl", &lines, "", target, &server.url);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let says = format!("{}/item/0?***: answered 200 OK", server.url);
    assert!(ended.stderr.contains(&says), "{}", ended.stderr);
}

#[test]
fn recorded_bodies_keep_their_own_times() {
    let mut lines = String::new();
    for number in 0..46 {
        // Pairs of one time.
        let (at_ms, twice) = (f64::from(number / 2) * 200.0, number % 2);
        let body = json!({"number": number, "twice": twice});
        let line = json!({"at": at_ms, "method": "PUT", "path": "/v1/p?q", "content_type": "text/x", "body": body});
        writeln!(lines, "{line}").unwrap();
    }
    let server = Noting::start(Duration::ZERO);
    let arrival = "column = \"at\"\nunit = \"ms\"\nspeed = 2.0\n";
    let (ended, _place) = replay("r.jsonl", &lines, arrival, "", &server.url);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut noted = server.noted().split_off(1);
    assert_eq!(noted.len(), 44);
    // Requests of one time go out on connections of their own.
    let number = |request: &Arrived| {
        serde_json::from_slice::<Value>(&request.body).unwrap()["number"]
            .as_u64()
            .unwrap()
    };
    noted.sort_by_key(number);
    let mut off_s = Vec::new();
    for (index, request) in noted.iter().enumerate() {
        assert_eq!(
            (number(request), request.line.as_str()),
            (index as u64, "PUT /v1/p?q HTTP/1.1")
        );
        assert!(request.headers.contains("content-type: text/x"), "{}", request.headers);
        let due_s = (index / 2) as f64 * 0.1;
        off_s.push(((request.at - noted[0].at).as_secs_f64() - due_s).abs());
    }
    off_s.sort_by(f64::total_cmp);
    // A quarter of the gap between pairs; a busy machine may be late for some.
    assert!(off_s[22] < 0.025, "{off_s:?}");
}

#[test]
fn recorded_infer_requests_go_to_the_model() {
    let mut lines = String::new();
    for number in 0..230 {
        let body = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [number]}]});
        writeln!(
            lines,
            "{}",
            json!({"timestamp": f64::from(number) * 0.01, "body": body})
        )
        .unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(scripted::serve(scripted::Script::default()));
    let plan = format!("{}[arrival]\nfile = \"r.jsonl\"\n", head("arrivals = \"replay\""));
    let place = Workdir::new(&plan);
    std::fs::write(place.path("r.jsonl"), lines).unwrap();
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = &place.run_json()["points"][0]["repeats"][0];
    assert_eq!(
        (&repeat["completed"], &repeat["sent"]["distinct"]),
        (&json!(200), &json!(220))
    );
}

#[test]
fn traces_of_mooncake_fill_a_template_with_words_of_their_blocks() {
    let mut lines = String::new();
    for number in 0..24 {
        let ids = [7, 100 + number];
        writeln!(
            lines,
            "{}",
            json!({"timestamp": number * 100, "input_length": 700, "output_length": number, "hash_ids": ids})
        )
        .unwrap();
    }
    let server = Noting::start(Duration::ZERO);
    let target = "path = \"/v1/completions\"\nbody = '{\"prompt\": \"{prompt}\", \"max_tokens\": {output_length}}'\n\
                  values = { prompt = { words = \"input_length\", blocks = \"hash_ids\" } }\n";
    let (ended, _place) = replay("trace.jsonl", &lines, "", target, &server.url);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let bodies: Vec<Value> = server.noted()[1..]
        .iter()
        .map(|request| serde_json::from_slice(&request.body).unwrap())
        .collect();
    assert_eq!(bodies.len(), 22);
    let left_out = "trace.jsonl: 2 of 24 requests left out: 2 come after the step's end";
    assert!(ended.stderr.contains(left_out), "{}", ended.stderr);
    let words = |body: &Value| {
        body["prompt"]
            .as_str()
            .unwrap()
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (first, second) = (words(&bodies[0]), words(&bodies[1]));
    assert_eq!((first.len(), &bodies[1]["max_tokens"]), (700, &json!(1)));
    assert_eq!(first[..512], second[..512]);
    assert_ne!(first[512..], second[512..]);
}

#[test]
fn contradictions_of_a_replay_are_refused_by_key() {
    let lines: String = (0..=10)
        .map(|tenth| format!("{{\"timestamp\": {}, \"path\": \"/\"}}\n", f64::from(tenth) / 10.0))
        .collect();
    for (arrival, target, says) in [
        ("", "", "the recording takes 1.000 s at its speed"),
        (
            "speed = 0.1",
            "bodies = \"b\"\n",
            "`target.bodies` is only allowed with other arrivals",
        ),
        (
            "speed = 0.1",
            "[[load]]\nmode = \"realtime\"\nrates = [5]\n",
            "`load` and `arrivals` exclude each other",
        ),
        ("speed = 0", "", "`arrival.speed`"),
    ] {
        let (ended, _place) = replay("r.jsonl", &lines, arrival, target, "http://127.0.0.1:9");
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

/// Sweep against a server of 80 requests a second for four connections.
fn slow(loads: &str) -> (Ended, Workdir) {
    let server = Noting::start(Duration::from_millis(50));
    let plan = head("").replace("max_in_flight = 64", "max_in_flight = 4");
    let place = Workdir::new(&format!(
        "{plan}{loads}[target]\nkind = \"http\"\nmetrics = []\npath = \"/\"\nbody = \"1\"\n"
    ));
    (run(place.sweep(&server.url)), place)
}

#[test]
fn a_ramp_has_blocks_and_stops_where_its_rate_is_not_reached() {
    let ramp = "[[load]]\nmode = \"realtime\"\nrates = { from = 20, to = 220, over = 1.9 }\n";
    let (ended, place) = slow(ramp);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let point = &place.run_json()["points"][0];
    let ramp = &point["repeats"][0]["ramp"];
    let stopped = ramp["stopped_rps"].as_f64().unwrap();
    assert!((80.0..=220.0).contains(&stopped), "{ramp}");
    let blocks = point["summary"]["ramp"].as_array().unwrap();
    assert!((4..=10).contains(&blocks.len()), "{blocks:?}");
    let offered = |block: &Value| block["offered_rps"][0].as_f64().unwrap();
    assert!(
        blocks.windows(2).all(|pair| offered(&pair[0]) < offered(&pair[1])),
        "{blocks:?}"
    );
    let answered = point["summary"]["achieved_rps"]["value"].as_f64().unwrap();
    assert!(
        ended.stderr.contains(&format!(", {answered:.0}/s, ")),
        "{answered}: {}",
        ended.stderr
    );
    assert!(ended.stdout.contains("the ramp stopped, at"), "{}", ended.stdout);
    assert!(ended.stdout.contains("Ramps"), "{}", ended.stdout);
}

#[test]
fn a_sweep_stops_above_a_saturated_rate() {
    let loads = "stop_at_saturation = true\n[[load]]\nmode = \"realtime\"\nrates = [20, 300, 400]\n";
    let (ended, place) = slow(loads);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = place.run_json();
    let rates: Vec<f64> = run["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["factors"]["offered_rps"].as_f64().unwrap())
        .collect();
    assert_eq!(rates, [20.0, 300.0]);
    assert!(
        run["left_out"][0].as_str().unwrap().contains("300/s: saturated"),
        "{run}"
    );
    assert!(ended.stdout.contains("higher rates were left out"), "{}", ended.stdout);
}

#[test]
fn a_step_does_not_begin_behind_requests_that_an_earlier_one_gave_up() {
    let server = Noting::with(Duration::from_millis(10), true);
    let head = scripted::HEAD.replace(
        "drain_s = 2.0\nmax_in_flight = 64",
        "drain_s = 0.3\nmax_in_flight = 256",
    );
    let place = Workdir::new(&format!(
        "{head}repeats = 2\nstep_s = 0.5\n[target]\nkind = \"http\"\npath = \"/\"\nbody = \"{{}}\"\nmetrics = []\n\
         [[load]]\nmode = \"realtime\"\nrates = [20, 350]\n"
    ));
    let ended = run(place.sweep(&server.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let points = place.run_json()["points"].clone();
    let errors = |point: usize, repeat: usize| points[point]["repeats"][repeat]["errors"].clone();
    assert!(errors(1, 0)["drain-limit"].as_u64().unwrap() > 50, "{}", errors(1, 0));
    // All ten without the wait; a machine that pauses may cost a few.
    let late = errors(0, 1)["drain-limit"].as_u64().unwrap_or(0);
    assert!(late < 5, "{}", errors(0, 1));
}

#[test]
fn requests_that_only_the_warm_up_gave_up_are_waited_for_too() {
    // 1.2 s of work in the warm-up, half of which is given up. The window's requests come after it.
    let times_ms = std::iter::repeat_n(0, 60).chain([1_900, 2_000, 2_100, 2_200]);
    let lines: String = times_ms
        .map(|at| format!("{{\"at\": {at}, \"path\": \"/\"}}\n"))
        .collect();
    let server = Noting::with(Duration::from_millis(20), true);
    let place = Workdir::new(&format!(
        "timeout_ms = 600\n{}[arrival]\nfile = \"r.jsonl\"\ncolumn = \"at\"\nunit = \"ms\"\nspeed = 1.0\n\
         [target]\nkind = \"http\"\nmetrics = []\n",
        head("arrivals = \"replay\"")
    ));
    std::fs::write(place.path("r.jsonl"), lines).unwrap();
    let ended = run(place.sweep(&server.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = &place.run_json()["points"][0]["repeats"][0];
    assert_eq!((&repeat["scheduled"], &repeat["errors"]), (&json!(3), &json!({})));
    // One before the step, those of the recording but the last, and one after the step.
    assert_eq!(server.noted().len(), 1 + 63 + 1);
}
