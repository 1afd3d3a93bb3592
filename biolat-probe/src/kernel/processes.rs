//! Facts about the running kernel that the programs of `biolat processes` need, resolved from its BTF.

use std::collections::BTreeMap;

use biolat_common::processes::ProcessConstants;

use super::{UnsupportedKernel, required_member};
use crate::{
    btf::{self, Btf, tracepoint},
    programs::COMPLETE,
};

/// Runs in the submitter's context at the start of each request. Since Linux 6.5.
const START: &str = "block_io_start";

/// Before that. Most requests run through both; some are issued without having been inserted.
const INSERT_AND_ISSUE: [&str; 2] = ["block_rq_insert", "block_rq_issue"];

/// The tracepoints and layout of a kernel, for counting I/Os by process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTracing {
    /// All but `sends_ios`, which is an option.
    pub constants: ProcessConstants,
    /// Tracepoints at the start of a request.
    pub starts: Vec<&'static str>,
    /// Type ids of the tracepoints, by name.
    ids: BTreeMap<&'static str, u32>,
}

impl ProcessTracing {
    /// Resolves the tracepoints and the layout from the bytes of the kernel's BTF.
    pub fn from_btf(bytes: &[u8]) -> Result<Self, UnsupportedKernel> {
        let btf = Btf::parse(bytes)?;
        let member = |structure: &str, member: &str| required_member(&btf, structure, member);
        let (starts, start_request) = starts(&btf).ok_or_else(|| {
            UnsupportedKernel::Missing(format!(
                "tracepoint {START}, nor {} with known arguments",
                INSERT_AND_ISSUE.join(" and ")
            ))
        })?;
        let id = |&name: &&'static str| Some((name, btf.typedef_id(&tracepoint(name))?));
        Ok(Self {
            constants: ProcessConstants {
                request_hctx: member("request", "mq_hctx")?,
                request_tag: member("request", "tag")?,
                request_internal_tag: member("request", "internal_tag")?,
                hctx_number: member("blk_mq_hw_ctx", "queue_num")?,
                task_leader: member("task_struct", "group_leader")?,
                task_comm: member("task_struct", "comm")?,
                start_request,
                sends_ios: 0,
            },
            ids: starts.iter().chain([&COMPLETE]).filter_map(id).collect(),
            starts,
        })
    }

    /// Encodes the tracepoints for aya: see [`super::Kernel::tracepoints`].
    pub(crate) fn tracepoints(&self) -> Result<aya::Btf, aya::BtfError> {
        let typedefs = self.ids.iter().map(|(name, &id)| (id, tracepoint(name))).collect();
        aya::Btf::parse(&btf::encode_typedefs(&typedefs), aya::Endianness::default())
    }
}

/// Returns the start tracepoints, and the offset of the request in their arguments.
fn starts(btf: &Btf<'_>) -> Option<(Vec<&'static str>, u32)> {
    // The first parameter of a tracepoint's function is private data.
    let parameters = |name| btf.parameter_count(&tracepoint(name));
    if parameters(START) == Some(2) {
        return Some((vec![START], 0));
    }
    match INSERT_AND_ISSUE.map(parameters) {
        [Some(2), Some(2)] => Some((INSERT_AND_ISSUE.to_vec(), 0)),
        [Some(3), Some(3)] => Some((INSERT_AND_ISSUE.to_vec(), size_of::<u64>() as u32)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use biolat_testing::btf::{Writer, tracepoint};

    use super::{ProcessTracing, UnsupportedKernel};

    /// BTF with these tracepoints, each with this many arguments.
    fn resolve(tracepoints: &[(&str, usize)], without: &str) -> Result<ProcessTracing, UnsupportedKernel> {
        let mut writer = Writer::new();
        let int = writer.int("int");
        let members = [("mq_hctx", int, 16), ("tag", int, 32), ("internal_tag", int, 36)];
        let members: Vec<_> = members.into_iter().filter(|(name, ..)| *name != without).collect();
        writer.structure(4, "request", &members);
        writer.structure(4, "blk_mq_hw_ctx", &[("queue_num", int, 300)]);
        writer.structure(4, "task_struct", &[("group_leader", int, 1400), ("comm", int, 1800)]);
        for (name, arguments) in tracepoints {
            tracepoint(&mut writer, name, &["void", "request_queue", "request"][..1 + arguments]);
        }
        ProcessTracing::from_btf(&writer.finish())
    }

    #[test]
    fn prefers_the_submitters_context() {
        let all = [("block_io_start", 1), ("block_rq_insert", 1), ("block_rq_issue", 1)];
        let tracing = resolve(&all, "").unwrap();
        assert_eq!((&tracing.starts[..], tracing.constants.start_request), (&["block_io_start"][..], 0));
        assert_eq!((tracing.constants.request_internal_tag, tracing.constants.hctx_number), (36, 300));
        assert_eq!((tracing.constants.task_leader, tracing.constants.task_comm), (1400, 1800));
    }

    #[test]
    fn finds_the_request_among_the_arguments() {
        for (arguments, offset) in [(1, 0), (2, 8)] {
            let tracing =
                resolve(&[("block_rq_insert", arguments), ("block_rq_issue", arguments)], "").unwrap();
            assert_eq!(tracing.starts, ["block_rq_insert", "block_rq_issue"]);
            assert_eq!(tracing.constants.start_request, offset);
        }
    }

    #[test]
    fn says_what_is_missing() {
        let error = resolve(&[("block_rq_issue", 1)], "").unwrap_err().to_string();
        assert!(
            error.contains("no tracepoint block_io_start, nor block_rq_insert and block_rq_issue"),
            "{error}"
        );
        let error = resolve(&[("block_io_start", 1)], "internal_tag").unwrap_err().to_string();
        assert!(error.contains("no member internal_tag in struct request"), "{error}");
    }
}
