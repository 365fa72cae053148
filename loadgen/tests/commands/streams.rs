//! Streamed replies, from a server with known times: each event in two TCP segments.

use crate::program::{Ended, Workdir, run};
use crate::scripted::HEAD;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Times after the arrival of a request.
const FIRST_BYTE: Duration = Duration::from_millis(150);
const FIRST_EVENT: Duration = Duration::from_millis(400);
const GAP: Duration = Duration::from_millis(100);
/// Events of a reply, without the last one.
const EVENTS: u32 = 6;
const LAST_EVENT: &str = "data: [DONE]\n\n";

/// Times of complete replies by the server's clock, in microseconds: of the first byte and the first event after the
/// request's arrival, and between events.
type Sent = Arc<Mutex<[Vec<f64>; 3]>>;

/// Reply to one request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Good,
    /// An event says that it is an error.
    Error,
    /// The body ends without its last event.
    NoLast,
    /// The connection breaks within an event.
    Cut,
}

fn serve(endings: &'static [Ending]) -> String {
    serve_noting(endings, &Sent::default())
}

fn serve_noting(endings: &'static [Ending], sent: &Sent) -> String {
    let sent = Arc::clone(sent);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (asked, sent) = (Arc::clone(&asked), Arc::clone(&sent));
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut stream = BufReader::new(stream);
                while let Some(body) = request(&mut stream) {
                    let arrived = Instant::now();
                    // Anything else than the drawn values ends the test's connection.
                    let Ok(body) = serde_json::from_str::<Value>(&body) else {
                        return;
                    };
                    assert!(body["max_tokens"].as_u64().is_some_and(|most| (4..=9).contains(&most)));
                    assert!(body["prompt"].as_str().is_some_and(|words| !words.is_empty()));
                    let ending = endings[asked.fetch_add(1, Ordering::Relaxed) % endings.len()];
                    if reply(stream.get_mut(), arrived, ending, &sent).is_none() {
                        return;
                    }
                }
            });
        }
    });
    url
}

fn request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", bytes)) => length = bytes.parse().ok()?,
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

/// Text of an event.
fn event(ending: Ending, number: u32) -> String {
    let data = match (ending, number) {
        (Ending::Error, 3) => "{\"error\": \"out of memory\"}".to_owned(),
        (_, last) if last == EVENTS - 1 => format!("{{\"usage\": {{\"n\": {EVENTS}}}}}"),
        _ => format!("{{\"choices\": [{number}]}}"),
    };
    format!(": {number}\ndata: {data}\n\n")
}

/// Sends a reply; `None` if the connection is of no more use.
fn reply(stream: &mut TcpStream, arrived: Instant, ending: Ending, sent: &Sent) -> Option<()> {
    // Returns the time of sending, which is late on a busy machine.
    let mut send = |after: Duration, bytes: &str| {
        thread::sleep((arrived + after).saturating_duration_since(Instant::now()));
        let us = arrived.elapsed().as_secs_f64() * 1e6;
        stream.write_all(bytes.as_bytes()).ok().map(|()| us)
    };
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let first_byte = send(FIRST_BYTE, head)?;
    let mut events = Vec::new();
    for number in 0..EVENTS {
        let at = FIRST_EVENT + GAP * number;
        let text = chunk(&event(ending, number));
        // The first half comes early and completes nothing.
        let (early, rest) = text.split_at(text.len() / 2);
        send(at.saturating_sub(GAP / 4), early)?;
        if ending == Ending::Cut && number == 3 {
            return None;
        }
        events.push(send(at, rest)?);
    }
    let last = match ending {
        Ending::NoLast => String::new(),
        _ => chunk(LAST_EVENT),
    };
    send(Duration::ZERO, &format!("{last}0\r\n\r\n"))?;
    let mut sent = sent.lock().unwrap();
    sent[0].push(first_byte);
    sent[1].push(events[0]);
    sent[2].extend(events.windows(2).map(|pair| pair[1] - pair[0]));
    Some(())
}

fn sweep(url: &str, reply: &str, args: &[&str]) -> (Ended, Workdir) {
    let place = Workdir::new(&format!(
        "{HEAD}repeats = 2\nstep_s = 2.0\n[target]\nkind = \"http\"\npath = \"/chat\"\nmetrics = []\n{reply}\
         body = '{{\"prompt\": \"{{prompt}}\", \"max_tokens\": {{most}}}}'\n[target.values]\nmost = {{ uniform = [4, 9] }}\n\
         prompt = {{ words = {{ lognormal = {{ median = 20, sigma = 0.5 }}, max = 90 }} }}\n[target.success]\n\
         last_event = \"[DONE]\"\n[[load]]\nmode = \"realtime\"\nrates = [20]\n"
    ));
    let mut sweep = place.sweep(url);
    sweep.args(args);
    (run(sweep), place)
}

/// Medians of a run over those of the server's clock: of the first byte, the first event and the gaps.
fn ratios(run: &Value, sent: &Sent) -> [f64; 3] {
    let streams = &run["points"][0]["summary"]["streams"];
    let mut sent = sent.lock().unwrap();
    std::array::from_fn(|index| {
        let us = &mut sent[index];
        us.sort_by(f64::total_cmp);
        let figure = ["first_byte", "ttft", "gap"][index];
        streams[figure]["percentiles"]["p50"]["value"].as_f64().unwrap() / us[us.len() / 2]
    })
}

const SSE: &str = "reply = \"sse\"\ntokens = \"/usage/n\"\n";

#[test]
fn events_are_timed_as_their_last_bytes_arrive() {
    let objectives = ["--slo", "ttft p50 < 900 ms", "--slo", "gap p50 < 900 ms"];
    // Other work on the machine delays some runs; a wrong time is wrong in every run.
    let mut off = Vec::new();
    let (ended, place) = loop {
        let sent = Sent::default();
        let (ended, place) = sweep(&serve_noting(&[Ending::Good], &sent), SSE, &objectives);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        off.push(ratios(&place.run_json(), &sent));
        if off[off.len() - 1].iter().all(|ratio| (0.98..=1.02).contains(ratio)) {
            break (ended, place);
        }
        assert!(off.len() < 5, "{off:?}");
    };
    let run = place.run_json();
    let point = &run["points"][0];
    let repeats = point["repeats"].as_array().unwrap();
    assert!(repeats.iter().all(|repeat| repeat["in_time"] == 40), "{repeats:?}");
    let summary = &point["summary"];
    assert_eq!(summary["goodput_share"], 1.0);
    for (figure, count) in [("events", EVENTS), ("tokens", EVENTS)] {
        assert_eq!(summary["streams"][figure]["mean"], f64::from(count), "{figure}");
    }
    let bytes: usize = (0..EVENTS).map(|number| event(Ending::Good, number).len()).sum();
    assert_eq!(summary["streams"]["bytes"]["mean"], (bytes + LAST_EVENT.len()) as f64);
    for shown in ["Streamed replies", "ttft p50", "gap p50", "tokens/s"] {
        assert!(ended.stdout.contains(shown), "{shown}: {}", ended.stdout);
    }
    let csv = std::fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert!(csv.contains("ttft_p99_us_hi") && csv.contains("tokens_mean"), "{csv}");
    let hdr = place.path("results/r").join(repeats[0]["hdr_file"].as_str().unwrap());
    assert!(std::fs::read_to_string(hdr).unwrap().contains("Tag=gap,"));
}

#[test]
fn pieces_of_any_body_are_timed() {
    let (ended, place) = sweep(&serve(&[Ending::Good]), "reply = \"chunked\"\n", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let streams = &place.run_json()["points"][0]["summary"]["streams"];
    // Each event in two pieces, and the last one.
    assert!(
        streams["events"]["mean"].as_f64().unwrap() > 1.5 * f64::from(EVENTS),
        "{streams}"
    );
    assert!(streams.get("tokens").is_none());
}

#[test]
fn failed_streams_are_failures_without_times() {
    use Ending::{Cut, Error, Good, NoLast};
    let url = serve(&[Good, Error, Good, NoLast, Good, Cut]);
    let (ended, place) = sweep(&url, SSE, &["--slo", "ttft p50 < 900 ms", "--fail-on", "slo"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    let run = place.run_json();
    let repeat = &run["points"][0]["repeats"][0];
    let count = |reason: &str| repeat["errors"][reason].as_u64().unwrap();
    assert!(
        (10..=16).contains(&count("wrong-reply")) && (5..=9).contains(&count("broken")),
        "{repeat}"
    );
    assert_eq!(repeat["in_time"], repeat["completed"]);
    let example = repeat["examples"]["wrong-reply"].as_str().unwrap();
    assert!(
        example.contains("has an error") || example.contains("before `[DONE]`"),
        "{example}"
    );
}

#[test]
fn other_senders_and_replies_are_refused_by_name() {
    let (ended, _place) = sweep(&serve(&[Ending::Good]), SSE, &["--workers", "2"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("`target.reply`") && ended.stderr.contains("--workers"));
    let (ended, _place) = sweep("http://127.0.0.1:9", "", &["--slo", "ttft p99 < 1 s"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`ttft p99 < 1 s` limits replies that stream"),
        "{}",
        ended.stderr
    );
}
