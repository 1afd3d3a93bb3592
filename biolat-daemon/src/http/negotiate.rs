//! Content negotiation: exposition format by `Accept`, compression by `Accept-Encoding`.

use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName};

use crate::expose::Format;

/// Returns the format that the client prefers, or the text format if it accepts none that biolat has.
#[must_use]
pub fn format(headers: &HeaderMap) -> Format {
    let accepted = elements(headers, ACCEPT);
    let weight = |format: Format| {
        accepted
            .iter()
            .filter(|element| matches_format(element, format))
            .map(|element| element.weight)
            .max()
            .unwrap_or(0)
    };
    // With equal weights the first format wins: formats are sorted by preference.
    let best = Format::ALL.into_iter().rev().max_by_key(|&format| weight(format));
    best.filter(|&format| weight(format) > 0).unwrap_or(Format::Text)
}

/// Whether the client accepts gzip.
#[must_use]
pub fn gzip(headers: &HeaderMap) -> bool {
    let accepted = elements(headers, ACCEPT_ENCODING);
    let weight =
        |name: &str| accepted.iter().find(|element| element.name == name).map(|element| element.weight);
    let gzip = weight("gzip").or_else(|| weight("x-gzip")).or_else(|| weight("*")).unwrap_or(0);
    gzip > 0 && gzip >= weight("identity").unwrap_or(0)
}

/// One element of an `Accept` header.
#[derive(Debug)]
struct AcceptElement {
    name: String,
    parameters: Vec<(String, String)>,
    /// In thousandths.
    weight: u16,
}

/// Whether an element of `Accept` matches this format. Wildcards match only the text format: they come from browsers and `curl`,
/// where people read the response.
fn matches_format(element: &AcceptElement, format: Format) -> bool {
    let parameter = |name: &str| {
        element.parameters.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    };
    match (format, element.name.as_str()) {
        (Format::Protobuf, "application/vnd.google.protobuf") => {
            parameter("proto") == Some("io.prometheus.client.metricfamily")
                && parameter("encoding").is_none_or(|encoding| encoding == "delimited")
        }
        (Format::OpenMetrics, "application/openmetrics-text") => {
            matches!(parameter("version"), None | Some("1.0.0" | "0.0.1"))
        }
        (Format::Text, "text/plain") => matches!(parameter("version"), None | Some("0.0.4")),
        (Format::Text, "text/*" | "*/*") => true,
        _ => false,
    }
}

/// Maximum number of elements read from a header. Prometheus sends 5.
const MAX_ELEMENTS: usize = 32;

fn elements(headers: &HeaderMap, name: HeaderName) -> Vec<AcceptElement> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).take(MAX_ELEMENTS).filter_map(element).collect()
}

fn element(text: &str) -> Option<AcceptElement> {
    let mut parts = text.split(';').map(|part| part.trim().to_ascii_lowercase());
    let name = parts.next().filter(|name| !name.is_empty())?;
    let mut parameters: Vec<_> = parts
        .filter_map(|part| {
            let (name, value) = part.split_once('=')?;
            Some((name.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
        })
        .collect();
    let weight = match parameters.iter().position(|(name, _)| name == "q") {
        None => 1000,
        Some(at) => weight(&parameters.remove(at).1)?,
    };
    Some(AcceptElement { name, parameters, weight })
}

/// Parses a weight from 0 to 1, in thousandths. Elements with other weights are ignored.
fn weight(text: &str) -> Option<u16> {
    let value: f32 = text.parse().ok()?;
    (0.0..=1.0).contains(&value).then_some((value * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue};

    use super::{format, gzip};
    use crate::expose::Format::{self, OpenMetrics, Protobuf, Text};

    const PROTOBUF: &str =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    fn accept(value: &str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(value).unwrap());
        format(&headers)
    }

    #[test]
    fn reads_only_the_start_of_a_long_header() {
        let after = |others| accept(&format!("{}{PROTOBUF}", "text/x;q=0.1,".repeat(others)));
        assert_eq!((after(31), after(32)), (Protobuf, Text));
    }

    #[test]
    fn headers_of_known_clients() {
        assert_eq!(format(&HeaderMap::new()), Text);
        // Prometheus 2.42 with native histograms, and without.
        assert_eq!(
            accept(&format!(
                "{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
            )),
            Protobuf
        );
        assert_eq!(
            accept(
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
            ),
            OpenMetrics
        );
        // Prometheus 3.
        assert_eq!(
            accept(&format!(
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,{PROTOBUF};q=0.6,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,*/*;q=0.2"
            )),
            Protobuf
        );
        // curl, and a browser.
        assert_eq!(accept("*/*"), Text);
        assert_eq!(accept("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Text);
    }

    #[test]
    fn weights_decide() {
        assert_eq!(accept("application/openmetrics-text;q=0.4, text/plain;q=0.5"), Text);
        assert_eq!(accept("application/openmetrics-text;q=0.5, text/plain;q=0.5"), OpenMetrics);
        assert_eq!(accept("application/openmetrics-text;q=0, */*;q=0.1"), Text);
        assert_eq!(accept(&format!("{PROTOBUF};q=0")), Text);
        assert_eq!(accept("application/openmetrics-text; Q=\"1.0\"; version=1.0.0"), OpenMetrics);
        assert_eq!(accept("application/openmetrics-text;q=7"), Text);
    }

    #[test]
    fn unsupported_formats_become_text() {
        assert_eq!(accept("application/json"), Text);
        assert_eq!(accept("application/vnd.google.protobuf"), Text);
        assert_eq!(accept(&PROTOBUF.replace("delimited", "text")), Text);
        assert_eq!(accept("application/openmetrics-text;version=2.0.0"), Text);
        assert_eq!(accept(";;;,,=,q"), Text);
    }

    #[test]
    fn encodings() {
        let accepts = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap());
            gzip(&headers)
        };
        assert!(!gzip(&HeaderMap::new()));
        assert!(accepts("gzip") && accepts("deflate, GZip;q=0.5") && accepts("*"));
        assert!(!accepts("gzip;q=0") && !accepts("br") && !accepts("gzip;q=0, *") && !accepts("identity"));
        assert!(!accepts("gzip;q=0.1, identity") && accepts("gzip, identity;q=0.5"));
    }
}
