//! Repeatable parts of an S3 server's error reply. In: a body, which may hold anything: the access key, the session
//! token, the request as it was signed. Out: its code, and its message without possible secrets. Pure.

/// The longest code and message that are repeated, in characters.
const CODE_CHARS: usize = 64;
const MESSAGE_CHARS: usize = 200;
/// Runs of this many characters of keys, tokens and signatures are left out. An access key has 20.
const SECRET_CHARS: usize = 16;

/// `Code (message)`, as far as there are any.
pub(super) fn code_and_message(body: &str) -> Option<String> {
    let code = element(body, "Code")?;
    let plain = code.len() <= CODE_CHARS && !code.is_empty() && code.bytes().all(|b| b.is_ascii_alphanumeric());
    let code = if plain { code } else { "a code that is none" };
    match element(body, "Message").map(without_secrets) {
        Some(message) if !message.is_empty() => Some(format!("{code} ({message})")),
        _ => Some(code.to_owned()),
    }
}

fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    rest.split_once('<').map(|(text, _)| text)
}

/// Formats a text as one line, shortened, with long runs of key characters replaced.
pub(super) fn without_secrets(text: &str) -> String {
    let of_key =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '%' | '_' | '-' | '.' | ':' | '~');
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = rest.find(|c| of_key(c) != of_key(first)).unwrap_or(rest.len());
        let (run, later) = rest.split_at(len);
        if of_key(first) && run.len() >= SECRET_CHARS {
            out.push('…');
        } else {
            out.extend(run.chars().map(|c| if c.is_control() { ' ' } else { c }));
        }
        rest = later;
        if out.len() > 4 * MESSAGE_CHARS {
            break;
        }
    }
    let mut short: String = out.chars().take(MESSAGE_CHARS).collect();
    if short.len() < out.len() {
        short.push('…');
    }
    short.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_code_is_told_and_no_secret() {
        let body = "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we \
            calculated with AKIAIOSFODNN7EXAMPLE does not match</Message><AWSAccessKeyId>AKIAIOSFODNN7EXAMPLE\
            </AWSAccessKeyId><CanonicalRequest>GET\n/b/k\nx-amz-security-token:FwoGZXIvYXdzEXAMPLETOKEN</CanonicalRequest>";
        let told = code_and_message(body).unwrap();
        assert_eq!(
            told,
            "SignatureDoesNotMatch (The request signature we calculated with … does not match)"
        );
        assert_eq!(code_and_message("<html>busy</html>"), None);
        assert_eq!(
            code_and_message("<Code>a b</Code>").as_deref(),
            Some("a code that is none")
        );
    }

    proptest! {
        #[test]
        fn what_is_told_is_short_and_holds_no_long_run(body in ".{0,400}", secret in "[A-Za-z0-9+/=]{16,80}") {
            let body = format!("<Code>X</Code><Message>{body} {secret} </Message>");
            let told = code_and_message(&body).unwrap();
            prop_assert!(told.chars().count() <= CODE_CHARS + MESSAGE_CHARS + 4);
            prop_assert!(!told.contains(&secret));
        }
    }
}
