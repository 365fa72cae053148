//! The whole way of a row: from the file through a stand-in for the device into the memory that a session has bound. The
//! session runs on the CPU and takes the stand-in's memory for the CPU's, which it is; that a CUDA session takes CUDA's
//! the same way is not shown by anything here.

#[path = "../../../../../storage/tests/standin/mod.rs"]
mod standin;

use super::*;
use crate::error::LoadError;
use crate::features::Join;
use crate::features::ids::EntityIds;
use crate::features::live::LiveTables;
use crate::features::tier::{FeatureTier, RowDestination};
use crate::inference::session::engine::Engine;
use crate::inference::session::tests::{INPUT, WIDTH, engines, parts};
use crate::inference::session::{Fault, RunError};
use crate::request::{Reason, Refusal, Stopwatch};
use libloading::{Library, Symbol};
use standin::StandIn;
use std::ffi::{CStr, c_char};
use strum::VariantArray as _;
use tierlab_formats::model::JoinedColumn;
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_protocol::infer::Data;
use tierlab_protocol::tensor::{DataType, TensorSpec};
use tierlab_storage::Tier;
use tierlab_storage::device::DevicePath;
use tierlab_storage::tiers::gds::{GdsConfig, GdsTier};
use tierlab_storage::tiers::nvme::NvmeTier;
use tierlab_storage::wrappers::StorageMetrics;

const ROWS: u64 = 300;

/// A folder with a table, and a stand-in whose device memory the CPU may touch.
struct Fixture {
    library: Library,
    standin: StandIn,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let standin = StandIn::build();
        // SAFETY: the stand-in has no initialisers but one that reads the environment.
        let library = unsafe { Library::new(standin.folder().join("libcuda.so.1")) }.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("features")).unwrap();
        let fixture = Self {
            library,
            standin,
            folder,
        };
        fixture.set(c"tagged", 0);
        fixture.write(&table());
        fixture
    }

    fn write(&self, table: &[u8]) {
        std::fs::write(self.folder.path().join("features/t.rows"), table).unwrap();
    }

    fn set(&self, name: &CStr, value: i64) {
        // SAFETY: the stand-in's own function of this type; the text outlives the call.
        let code = unsafe {
            let set: Symbol<'_, unsafe extern "C" fn(*const c_char, i64) -> i32> =
                self.library.get("standin_set").unwrap();
            set(name.as_ptr(), value)
        };
        assert_eq!(code, 0, "the stand-in has no setting {name:?}");
    }

    fn count(&self, name: &CStr) -> i64 {
        // SAFETY: as above.
        unsafe {
            let get: Symbol<'_, unsafe extern "C" fn(*const c_char) -> i64> = self.library.get("standin_get").unwrap();
            get(name.as_ptr())
        }
    }

    async fn join(&self, path: DevicePath, prove_every: u32) -> Result<Join, LoadError> {
        let config = GdsConfig {
            root: self.folder.path().to_owned(),
            device: 0,
            path,
            chunk_bytes: 64 << 10,
            pinned_buffers: 2,
            threads: 4,
            device_memory_bytes: 64 << 20,
            libraries: vec![self.standin.folder()],
        };
        let tier = GdsTier::open(&config).await.unwrap();
        join(Arc::new(tier), RowDestination::Device { prove_every }).await
    }

    /// Everything that was taken has been given back.
    fn assert_balanced(&self) {
        for name in [
            c"contexts",
            c"allocations",
            c"streams",
            c"events",
            c"handles",
            c"buffers",
            c"pinned",
            c"violations",
        ] {
            assert_eq!(self.count(name), 0, "{name:?}");
        }
    }
}

async fn join(tier: Arc<dyn Tier>, destination: RowDestination) -> Result<Join, LoadError> {
    let tier = FeatureTier {
        uncached: Arc::clone(&tier),
        rows: tier,
        kind: "gds",
        destination,
        damaged: StorageMetrics::unscraped().unwrap().damaged_rows("gds"),
    };
    let input = TensorSpec {
        name: INPUT.into(),
        dtype: DataType::Fp32,
        shape: vec![-1, WIDTH as i64],
    };
    let wanted = JoinedColumn {
        input: 0,
        column: "x".into(),
    };
    Join::open(tier, LiveTables::new(None), "t", &[input], &[wanted]).await
}

/// Rows of 512 bytes from id 0, of which the input is some in the middle.
fn table() -> Vec<u8> {
    let columns: &[(&str, DataType, &[i64])] = &[
        ("before", DataType::Int64, &[3]),
        ("x", DataType::Fp32, &[WIDTH as i64]),
        ("after", DataType::Int8, &[1]),
    ];
    let header = TableHeader::new(TableSchema::lay_out("t", columns).unwrap(), ROWS, 0, 0).unwrap();
    let mut bytes = header.encode();
    for id in header.ids() {
        let mut row = vec![id as u8; header.stride as usize];
        let offset = header.schema.columns[1].offset as usize;
        row[offset..offset + 4 * WIDTH].copy_from_slice(&payload(id));
        header.seal_row(id, &mut row);
        bytes.extend_from_slice(&row);
    }
    bytes
}

fn payload(id: i64) -> Vec<u8> {
    let elements = (0..WIDTH).map(|i| ((id * 64) as f32 + i as f32).sin());
    elements.flat_map(f32::to_le_bytes).collect()
}

fn payloads(ids: &[i64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| payload(id)).collect()
}

async fn rows(join: &Join, ids: &[i64]) -> Result<Part, Refusal> {
    let joined = join
        .rows(&EntityIds::Int64(ids.to_vec()), &mut Stopwatch::start())
        .await?;
    Ok(joined.into_iter().next().unwrap().1)
}

/// Answers of a session to requests of one input each.
fn run(engine: &mut Engine, requests: &[&Part]) -> Result<Vec<Data>, RunError> {
    let counts: Vec<usize> = requests.iter().map(|part| part.shape[0] as usize).collect();
    let requests: Vec<&[Part]> = requests.iter().map(|part| std::slice::from_ref(*part)).collect();
    let answers = engine.run_parts(&requests, &counts)?;
    Ok(answers
        .outputs
        .into_iter()
        .map(|mut outputs| outputs.remove(0).data)
        .collect())
}

/// The bytes of the device tensor that the session's input is bound to.
fn bound_bytes(engine: &Engine) -> Vec<u8> {
    let tensor = &engine.pinned.as_ref().unwrap().device.bound[INPUT];
    let mut bytes = vec![0; tensor.len()];
    tensor.to_host(0, &mut bytes).unwrap();
    bytes
}

fn is_on_device(part: &Part) -> bool {
    matches!(part.data, Elements::Device(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_reach_the_session_by_every_path_without_a_copy_on_the_host() {
    let [mut plain, mut bound] = engines();
    assert_eq!(bound.signature.inputs[0].name, INPUT);
    for &path in DevicePath::VARIANTS {
        let fixture = Fixture::new();
        let nvme = NvmeTier::open(fixture.folder.path(), 8, false).await.unwrap();
        let on_host = join(Arc::new(nvme), RowDestination::Host).await.unwrap();
        let on_device = fixture.join(path, 0).await.unwrap();
        let requests: [&[i64]; 4] = [&[7], &[3, 4, 5, 250, 250, 0], &[299], &[12, 11, 10]];
        let copies = fixture.count(c"sync_copies");
        let (mut host, mut device) = (Vec::new(), Vec::new());
        for ids in requests {
            host.push(rows(&on_host, ids).await.unwrap());
            device.push(rows(&on_device, ids).await.unwrap());
        }
        assert!(host.iter().all(|part| !is_on_device(part)) && device.iter().all(is_on_device));
        let expected = run(&mut plain, &host.iter().collect::<Vec<_>>())
            .map_err(|e| e.message)
            .unwrap();
        let actual = run(&mut bound, &device.iter().collect::<Vec<_>>())
            .map_err(|e| e.message)
            .unwrap();
        assert!(expected == actual, "{path:?}");
        if path != DevicePath::Pageable {
            assert_eq!(
                fixture.count(c"sync_copies"),
                copies,
                "{path:?}: nothing goes to the host, or comes from there again"
            );
        }
        assert!(bound_bytes(&bound) == payloads(&requests.concat()), "{path:?}");
        // A later batch, smaller than the one before; and one whose memory was given back meanwhile.
        device.truncate(1);
        let actual = run(&mut bound, &[&device[0]]).map_err(|e| e.message).unwrap();
        assert!(actual == expected[..1] && bound_bytes(&bound) == payloads(&[7]));
        // The engine holds its tensor until the next batch; the rows went back with their last holder.
        drop((device, on_device));
        run(&mut bound, &[&parts(1, 0.1)[0]]).map_err(|e| e.message).unwrap();
        let device = &mut bound.pinned.as_mut().unwrap().device;
        device.bound.clear();
        device.target = None;
        fixture.assert_balanced();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_both_kinds_share_a_batch_and_large_ones_are_cut() {
    let [mut plain, mut bound] = engines();
    let fixture = Fixture::new();
    let join = fixture.join(DevicePath::Gds, 1).await.unwrap();
    let sent = parts(3, 0.4).remove(0);
    let ids: Vec<i64> = (0..40).map(|i| i * 7 % 300).collect();
    let joined = rows(&join, &ids).await.unwrap();
    let spec = &bound.signature.inputs[0];
    let pieces = crate::batch::job::cut(std::slice::from_ref(&joined), std::slice::from_ref(spec), 40, 16);
    assert_eq!(pieces.len(), 3);
    let mut batch = vec![&sent];
    batch.extend(pieces.iter().map(|piece| &piece.0[0]));
    let actual = run(&mut bound, &batch).map_err(|e| e.message).unwrap();
    let whole = Part {
        shape: vec![40, WIDTH as i64],
        data: payloads(&ids).into(),
    };
    let expected = run(&mut plain, &[&sent, &whole]).map_err(|e| e.message).unwrap();
    let concat = |answers: &[Data]| -> Vec<u8> { answers.iter().flat_map(|data| data.whole().into_owned()).collect() };
    assert!(concat(&actual) == concat(&expected));
    let refused = run(&mut plain, &[&joined]).err().unwrap();
    assert!(
        refused.message.contains("device memory") && refused.fault == Fault::Run,
        "{}",
        refused.message
    );
    drop((joined, pieces, join, bound));
    fixture.assert_balanced();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_found_as_often_as_the_config_says() {
    let fixture = Fixture::new();
    // Every row: damaged once on its way is mended, damaged twice is refused, and the next is served again.
    let join = fixture.join(DevicePath::Gds, 1).await.unwrap();
    fixture.set(c"flip", 1);
    assert!(rows(&join, &[5, 6]).await.is_ok(), "read again, and right");
    fixture.set(c"flip", 2);
    let refusal = rows(&join, &[5, 6]).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Corrupt);
    assert!(
        refusal.message.contains("features/t.rows") && refusal.message.contains("entity 5"),
        "{refusal}"
    );
    assert!(rows(&join, &[5, 6]).await.is_ok());
    drop(join);
    // Every second request: the first is proven, the second is not.
    let join = fixture.join(DevicePath::Gds, 2).await.unwrap();
    fixture.set(c"flip", 2);
    assert_eq!(rows(&join, &[5]).await.unwrap_err().reason, Reason::Corrupt);
    fixture.set(c"flip", 2);
    assert!(
        rows(&join, &[5]).await.is_ok(),
        "what is not looked at is not found: the docs say so"
    );
    fixture.set(c"flip", 0);
    drop(join);
    fixture.assert_balanced();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_whose_rows_are_trusted_is_proven_whole_when_it_is_opened_or_replaced() {
    let fixture = Fixture::new();
    let mut damaged = table();
    let at = damaged.len() - 100;
    damaged[at] ^= 1;
    fixture.write(&damaged);
    let refused = fixture.join(DevicePath::Gds, 0).await.err().unwrap().to_string();
    assert!(
        refused.contains("features/t.rows") && refused.contains("entity 299"),
        "{refused}"
    );
    let proven_by_row = fixture.join(DevicePath::Gds, 1).await.unwrap();
    assert!(rows(&proven_by_row, &[298]).await.is_ok());
    assert_eq!(rows(&proven_by_row, &[299]).await.unwrap_err().reason, Reason::Corrupt);
    fixture.write(&table());
    let trusted = fixture.join(DevicePath::Gds, 0).await.unwrap();
    assert!(rows(&trusted, &[299]).await.is_ok());
    fixture.write(&damaged);
    let refusal = rows(&trusted, &[3]).await.unwrap_err();
    assert!(
        refusal.reason == Reason::Corrupt && refusal.message.contains("entity 299"),
        "{refusal}"
    );
    fixture.write(&table());
    assert!(
        rows(&trusted, &[3]).await.is_ok(),
        "and the one after that is served again"
    );
    drop((proven_by_row, trusted));
    fixture.assert_balanced();
}
