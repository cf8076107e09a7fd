//! What the clients print, as numbers. A client that got refusals or no answers measured something else, and that is an error.

use anyhow::{Context, Result, bail, ensure};

use crate::comparison::Sample;

/// `redis-benchmark --csv`. It ends with an error by itself at the first error reply.
pub(super) fn redis_benchmark(printed: &str) -> Result<Sample> {
    let mut lines = printed.lines().filter(|line| line.starts_with('"')).map(fields);
    let (Some(heads), Some(row)) = (lines.next(), lines.next()) else {
        bail!("redis-benchmark printed no result: {}", printed.trim());
    };
    let column = |name: &str| {
        let at = heads.iter().position(|head| *head == name);
        let cell = at.and_then(|at| row.get(at)).and_then(|cell| cell.parse::<f64>().ok());
        cell.with_context(|| format!("redis-benchmark printed no {name}: {}", printed.trim()))
    };
    Ok(Sample { value: column("rps")?, beside: Some(column("p99_latency_ms")?) })
}

/// Quoted, and no quotes within.
fn fields(line: &str) -> Vec<&str> {
    line.trim().trim_matches('"').split("\",\"").collect()
}

/// `wrk --latency`.
pub(super) fn wrk(printed: &str) -> Result<Sample> {
    for trouble in ["Non-2xx or 3xx responses:", "Socket errors:"] {
        if let Some(line) = printed.lines().find(|line| line.trim().starts_with(trouble)) {
            bail!("wrk had answers that are not 200: {}", line.trim());
        }
    }
    let after = |word: &str| {
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(word));
        line.map(str::trim).with_context(|| format!("wrk printed no {word}"))
    };
    let value: f64 = after("Requests/sec:")?.parse().context("wrk printed no rate")?;
    ensure!(value > 0.0, "wrk had no answer at all");
    Ok(Sample { value, beside: Some(milliseconds(after("99%")?)?) })
}

/// `756.00us`, `1.44ms`, `2.03s`, `1.50m`.
fn milliseconds(text: &str) -> Result<f64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        _ => bail!("{text:?} is no time of wrk's"),
    };
    Ok(number.parse::<f64>().with_context(|| format!("{text:?} is no time of wrk's"))? * factor)
}

/// A gRPC message has a head of five bytes, and an answer that says anything has at least two more.
const SMALLEST_ANSWER: u64 = 7;

/// `h2load`, of gRPC calls. A call that failed has the HTTP status 200 all the same; only its answer is missing.
pub(super) fn h2load(printed: &str) -> Result<Sample> {
    let line = |begin: &str| {
        let found = printed.lines().find_map(|line| line.strip_prefix(begin));
        found.with_context(|| format!("h2load printed no line with {begin:?}: {}", printed.trim()))
    };
    let requests = line("requests: ")?;
    let counted = |what: &str| {
        let count = requests.split(", ").find_map(|part| part.strip_suffix(what));
        count.and_then(|n| n.trim().parse::<u64>().ok()).with_context(|| format!("h2load counted no{what}"))
    };
    let (done, succeeded) = (counted(" done")?, counted(" succeeded")?);
    ensure!(done > 0 && done == succeeded, "h2load had calls that failed: {requests}");
    let traffic = line("traffic: ")?;
    // `561.90KB (575388) data` at the end.
    let data = traffic.rsplit_once('(').and_then(|(_, end)| end.split_once(')'));
    let data: u64 = data.and_then(|(n, _)| n.parse().ok()).context("h2load counted no data")?;
    ensure!(
        data >= done * SMALLEST_ANSWER,
        "h2load had {done} answers with {data} bytes of data together: the server refused the calls"
    );
    let finished = line("finished in ")?;
    let rate = finished.split(", ").find_map(|part| part.strip_suffix(" req/s"));
    let value = rate.and_then(|rate| rate.parse().ok()).context("h2load printed no rate")?;
    Ok(Sample { value, beside: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS_BENCHMARK: &str = include_str!("captured/redis-benchmark.csv");
    const WRK_SAMPLE: Sample = Sample { value: 79_428.23, beside: Some(5.89) };
    const WRK: &str = include_str!("captured/wrk.txt");
    const WRK_REFUSED: &str = include_str!("captured/wrk-refused.txt");
    const H2LOAD: &str = include_str!("captured/h2load.txt");
    const H2LOAD_UNKNOWN_METHOD: &str = include_str!("captured/h2load-unknown-method.txt");

    #[test]
    fn redis_benchmark_is_read_by_the_names_of_its_columns() {
        let sample = redis_benchmark(REDIS_BENCHMARK).unwrap();
        assert_eq!(sample, Sample { value: 103_626.94, beside: Some(0.735) });
        let warned = format!("WARNING: Could not fetch server CONFIG\n{REDIS_BENCHMARK}");
        assert_eq!(redis_benchmark(&warned).unwrap(), sample);
    }

    #[test]
    fn a_client_that_printed_nothing_is_an_error() {
        assert!(redis_benchmark(REDIS_BENCHMARK.lines().next().unwrap()).is_err());
        assert!(wrk("").is_err());
        assert!(h2load("finished in 0us, 0.00 req/s, 0B/s\n").is_err());
    }

    #[test]
    fn wrk_is_read_with_its_99th_percentile_in_any_unit() {
        assert_eq!(wrk(WRK).unwrap(), WRK_SAMPLE);
        for (text, expected) in
            [("756.00us", 0.756), ("1.44ms", 1.44), ("2.00s", 2_000.0), ("1.50m", 90_000.0)]
        {
            assert!((milliseconds(text).unwrap() - expected).abs() < 1e-9, "{text}");
        }
        assert!(milliseconds("12h").is_err() && milliseconds("ms").is_err());
    }

    #[test]
    fn refusals_that_wrk_had_are_an_error_that_tells_how_many() {
        let error = wrk(WRK_REFUSED).unwrap_err().to_string();
        assert!(error.contains("Non-2xx or 3xx responses: 111511"), "{error}");
        let broken = WRK
            .replace("Requests/sec", "  Socket errors: connect 0, read 7, write 0, timeout 0\nRequests/sec");
        assert!(wrk(&broken).unwrap_err().to_string().contains("read 7"));
    }

    #[test]
    fn h2load_is_read_from_its_summary() {
        assert_eq!(h2load(H2LOAD).unwrap(), Sample { value: 31_966.0, beside: None });
    }

    #[test]
    fn a_grpc_call_that_is_refused_with_status_200_is_an_error() {
        assert!(H2LOAD_UNKNOWN_METHOD.contains(" 0 failed"), "h2load itself sees nothing wrong");
        let error = h2load(H2LOAD_UNKNOWN_METHOD).unwrap_err().to_string();
        assert!(error.contains("with 0 bytes of data"), "{error}");
        let broken = H2LOAD.replace("31966 succeeded, 0 failed", "31960 succeeded, 6 failed");
        assert!(h2load(&broken).is_err());
    }
}
