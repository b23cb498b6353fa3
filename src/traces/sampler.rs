//! Decides which traces are recorded (`OTEL_TRACES_SAMPLER`).

use super::context::TraceContext;

/// Whether a trace that starts here is recorded, and whether clients decide about their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    of_new: NewTraces,
    follows_parent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum NewTraces {
    All,
    None,
    /// A fraction of traces, from 0.0 to 1.0.
    Part(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            of_new: NewTraces::All,
            follows_parent: true,
        }
    }
}

impl Sampler {
    /// Parses a name of the specification and its argument, which only ratios have (1.0 by
    /// default).
    ///
    /// # Errors
    ///
    /// Returns what the name or the argument must be.
    pub fn parse(name: &str, argument: Option<&str>) -> Result<Self, SamplerError> {
        let (of_new, follows_parent) = match name.strip_prefix("parentbased_") {
            Some(of_new) => (of_new, true),
            None => (name, false),
        };
        let of_new = match of_new {
            "always_on" => NewTraces::All,
            "always_off" => NewTraces::None,
            "traceidratio" => NewTraces::Part(ratio(argument)?),
            _ => return Err(SamplerError::Name),
        };
        Ok(Self {
            of_new,
            follows_parent,
        })
    }

    /// Whether a trace is recorded. The decision for a trace is the same everywhere.
    pub fn samples(&self, trace: u128, parent: Option<TraceContext>) -> bool {
        if let Some(parent) = parent.filter(|_| self.follows_parent) {
            return parent.is_sampled;
        }
        match self.of_new {
            NewTraces::All => true,
            NewTraces::None => false,
            NewTraces::Part(part) => {
                // The lower half of a trace id is random.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_precision_loss,
                    reason = "a fraction of traces need not be exact"
                )]
                let place = (trace as u64 >> 11) as f64 / (1_u64 << 53) as f64;
                place < part
            }
        }
    }
}

fn ratio(argument: Option<&str>) -> Result<f64, SamplerError> {
    let Some(argument) = argument else {
        return Ok(1.0);
    };
    let ratio = argument.parse().ok();
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or(SamplerError::Argument)
}

/// The name or argument of a sampler is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerError {
    Name,
    Argument,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_parse_from_their_names() {
        let table = [
            ("always_on", None, Ok((true, false))),
            ("always_off", None, Ok((false, false))),
            ("parentbased_always_on", None, Ok((true, true))),
            ("parentbased_always_off", Some("0.5"), Ok((false, true))),
            ("traceidratio", Some("0"), Ok((false, false))),
            ("parentbased_traceidratio", None, Ok((true, true))),
            ("traceidratio", Some("1.5"), Err(SamplerError::Argument)),
            ("traceidratio", Some("NaN"), Err(SamplerError::Argument)),
            ("jaeger_remote", None, Err(SamplerError::Name)),
            ("", None, Err(SamplerError::Name)),
        ];
        for (name, argument, expected) in table {
            let sampler = Sampler::parse(name, argument);
            let found = sampler.map(|it| (it.samples(u128::MAX / 2, None), it.follows_parent));
            assert_eq!(found, expected, "{name} {argument:?}");
        }
        assert_eq!(
            Sampler::parse("parentbased_always_on", None),
            Ok(Sampler::default())
        );
    }

    #[test]
    fn parent_based_samplers_follow_the_client() {
        let parent = |is_sampled| {
            Some(TraceContext {
                trace: 1,
                span: 1,
                is_sampled,
            })
        };
        for (name, recorded, left_out) in [
            ("parentbased_always_off", true, false),
            ("parentbased_always_on", true, false),
            ("always_on", true, true),
            ("always_off", false, false),
        ] {
            let sampler = Sampler::parse(name, None).unwrap();
            assert_eq!(sampler.samples(1, parent(true)), recorded, "{name}");
            assert_eq!(sampler.samples(1, parent(false)), left_out, "{name}");
        }
    }

    #[test]
    fn a_ratio_is_met_and_consistent_per_trace() {
        let sampler = Sampler::parse("traceidratio", Some("0.25")).unwrap();
        let traces = (0..4000_u128).map(|number| number * (1 << 52) + (7 << 64));
        let sampled = traces.filter(|trace| sampler.samples(*trace, None)).count();
        assert_eq!(sampled, 1024);
    }
}
