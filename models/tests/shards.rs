//! `import-table` of shards: tar archives of samples and TFRecord files, the real binary with real files.

use prost::Message as _;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tierlab_formats::shards::example::{BytesList, Example, Feature, Features, FloatList, Int64List, Kind};
use tierlab_formats::shards::{tar, tfrecord};
use tierlab_formats::table::{KeyIndex, TableHeader};

fn import(at: &Path, args: &[&str]) -> Output {
    let base = ["import-table", "--out", "f", "--name", "t", "--restart", "--replace"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-models"));
    command
        .current_dir(at)
        .args(base)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn succeed(at: &Path, args: &[&str]) {
    let output = import(at, args);
    assert!(output.status.success(), "{args:?}: {}", output_text(&output));
}

fn fail(at: &Path, args: &[&str]) -> String {
    let output = import(at, args);
    assert!(
        matches!(output.status.code(), Some(1 | 2)),
        "{args:?}: {}",
        output_text(&output)
    );
    output_text(&output)
}

/// The bytes of a column in the row of a key.
fn column(at: &Path, key: &[u8], column: &str) -> Vec<u8> {
    let file = fs::read(at.join("f/t.rows")).unwrap();
    let header = TableHeader::decode(&file, file.len() as u64).unwrap();
    let range = header.index_range().unwrap();
    let index = KeyIndex::decode(&file[range.start as usize..range.end as usize], header.rows).unwrap();
    let row = index.row(key).unwrap().cast_signed();
    let range = header.row_range(row).unwrap();
    let row_bytes = &file[range.start as usize..range.end as usize];
    header.check_row(row, row_bytes).unwrap();
    assert_eq!(header.schema.key.as_ref().unwrap().get(row_bytes).unwrap(), key);
    header
        .schema
        .column(column)
        .unwrap()
        .of_row(row_bytes)
        .unwrap()
        .to_vec()
}

fn rows(at: &Path) -> u64 {
    let file = fs::read(at.join("f/t.rows")).unwrap();
    TableHeader::decode(&file, file.len() as u64).unwrap().rows
}

fn le<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}

/// A one-dimensional array of FP32 as NumPy saves it.
fn npy(values: &[f32]) -> Vec<u8> {
    let header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}\n",
        values.len()
    );
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(le(values, f32::to_le_bytes));
    file
}

/// The files of a sample: a class, a vector, an object, an image of any length.
fn sample(i: i64) -> Vec<(String, Vec<u8>)> {
    let vector: Vec<f32> = (0..4).map(|part| (i * 10 + part) as f32).collect();
    let price = if i % 2 == 0 {
        format!("{}", i / 2)
    } else {
        format!("{}.5", i / 2)
    };
    let json = format!(r#"{{"price": {price}, "tags": [{i}, 2, 3], "deep": {{"a": 1}}}}"#);
    let file = |extension: &str| format!("train/{i}.{extension}");
    vec![
        (file("cls"), format!("{}\n", i % 10).into_bytes()),
        (file("emb.npy"), npy(&vector)),
        (file("json"), json.into_bytes()),
        (file("jpg"), vec![0xff; 10 + (i % 7) as usize]),
    ]
}

fn archive(path: &Path, samples: impl Iterator<Item = Vec<(String, Vec<u8>)>>) {
    let mut bytes = Vec::new();
    for (name, body) in samples.flatten() {
        tar::push(&name, &body, &mut bytes).unwrap();
    }
    tar::finish(&mut bytes);
    fs::write(path, bytes).unwrap();
}

const COLUMNS: &str = "cls,emb.npy,json.price,json.tags";

#[test]
fn samples_of_a_tar_become_rows_with_a_column_for_each_extension() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    archive(&at.join("a.tar"), (0..2500).map(sample));
    let base = ["a.tar", "--key", "__key__"];
    let refused = fail(at, &base);
    assert!(refused.contains("--columns") && refused.contains("Binary"), "{refused}");
    succeed(at, &[&base[..], &["--columns", COLUMNS]].concat());
    assert_eq!(rows(at), 2500);
    for i in [0_i64, 1023, 1024, 2499] {
        let key = format!("train/{i}");
        let get = |name: &str| column(at, key.as_bytes(), name);
        assert_eq!(get("cls"), (i % 10).to_le_bytes());
        let vector: Vec<f32> = (0..4).map(|part| (i * 10 + part) as f32).collect();
        assert_eq!(get("emb.npy"), le(&vector, f32::to_le_bytes));
        assert_eq!(get("json.price"), (i as f64 / 2.0).to_le_bytes());
        assert_eq!(get("json.tags"), le(&[i, 2, 3], i64::to_le_bytes));
    }
    succeed(at, &["a.tar", "--key", "@row", "--columns", COLUMNS]);
    assert_eq!(column(at, &7_i64.to_le_bytes(), "cls"), 7_i64.to_le_bytes());
}

#[test]
fn an_archive_whose_first_file_has_a_name_like_a_pointer_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let sample = |i: i64| vec![(format!("versions/{i}.cls"), format!("{i}\n").into_bytes())];
    archive(&at.join("a.tar"), (0..3).map(sample));
    succeed(at, &["a.tar", "--key", "__key__"]);
    assert_eq!(column(at, b"versions/2", "cls"), 2_i64.to_le_bytes());
}

#[test]
fn shards_that_were_laid_out_keep_types_shapes_and_values() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("tier")).unwrap();
    let tier = format!("kind = \"nvme\"\nroot = \"{}\"\n", at.join("tier").display());
    fs::write(at.join("tier.toml"), tier).unwrap();
    for args in [
        &["features", "--table", "ctr", "--rows", "50", "--out", "own"][..],
        &["lay-out", "--features", "own", "--layout", "tar", "--to", "tier.toml"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-models"));
        let output = command.current_dir(at).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", output_text(&output));
    }
    let parts = fs::read_dir(at.join("tier/features/ctr.tar")).unwrap();
    let version = parts
        .map(|part| part.unwrap().path())
        .find(|part| part.is_dir())
        .unwrap();
    let shard = version.join("000000.tar");
    succeed(at, &[shard.to_str().unwrap(), "--key", "__key__"]);
    let decode = |file: &[u8]| TableHeader::decode(file, file.len() as u64).unwrap();
    let file = fs::read(at.join("own/ctr.rows")).unwrap();
    let (own, back) = (decode(&file), decode(&fs::read(at.join("f/t.rows")).unwrap()));
    for name in ["dense", "categorical"] {
        let imported = format!("{name}.npy");
        let (before, after) = (own.schema.column(name).unwrap(), back.schema.column(&imported).unwrap());
        assert_eq!((before.dtype, &before.shape), (after.dtype, &after.shape), "{name}");
        for id in [0, 49] {
            let range = own.row_range(id).unwrap();
            let row = &file[range.start as usize..range.end as usize];
            let key = format!("{id:012}");
            assert_eq!(
                column(at, key.as_bytes(), &imported),
                before.of_row(row).unwrap(),
                "{name} {id}"
            );
        }
    }
}

#[test]
fn files_that_cannot_be_read_matter_only_to_columns_that_need_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = |i: i64, extension: &str, body: String| (format!("{i}.{extension}"), body.into_bytes());
    let samples = (0..3).map(|i| vec![file(i, "cls", i.to_string()), file(i, "json", "NaN".to_owned())]);
    archive(&at.join("a.tar"), samples);
    let refused = fail(at, &["a.tar", "--key", "__key__"]);
    assert!(refused.contains("column `json`: expected value"), "{refused}");
    succeed(at, &["a.tar", "--key", "__key__", "--columns", "cls"]);
    assert_eq!(column(at, b"2", "cls"), 2_i64.to_le_bytes());
}

#[test]
fn integers_of_json_that_a_double_rounds_make_bad_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let objects = [
        r#"{"x": 0.5, "l": [1.5, 2]}"#,
        r#"{"x": 9007199254740993, "l": [0.5, 1]}"#,
        r#"{"x": 2, "l": [9007199254740993, 0.5]}"#,
        r#"{"x": 2, "l": [1, 9007199254740993]}"#,
    ];
    let samples = objects.iter().enumerate();
    let samples = samples.map(|(i, json)| vec![(format!("{i}.json"), json.as_bytes().to_vec())]);
    archive(&at.join("a.tar"), samples);
    let output = import(at, &["a.tar", "--key", "__key__"]);
    assert_eq!(
        (output.status.code(), rows(at)),
        (Some(3), 1),
        "{}",
        output_text(&output)
    );
    let bad = fs::read_to_string(at.join("f/t.bad.jsonl")).unwrap();
    assert_eq!(bad.matches("FP64 rounds 9007199254740993").count(), 3, "{bad}");
    // Without any float, the list has integers, which are exact.
    let exact = vec![("0.json".to_owned(), objects[3].as_bytes().to_vec())];
    archive(&at.join("a.tar"), std::iter::once(exact));
    succeed(at, &["a.tar", "--key", "__key__"]);
    let wanted = le(&[1, 9_007_199_254_740_993], i64::to_le_bytes);
    assert_eq!(column(at, b"0", "json.l"), wanted);
}

#[test]
fn a_declared_float_is_the_type_of_every_sample() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // The samples that types are taken from have integers only.
    let number = |i: i64| match i {
        148 => "9007199254740993",
        149 => "7.25",
        _ => "7",
    };
    let json = |i: i64| format!(r#"{{"x": {0}, "l": [1, {0}]}}"#, number(i)).into_bytes();
    archive(
        &at.join("a.tar"),
        (0..150).map(|i| vec![(format!("{i}.json"), json(i))]),
    );
    let base = ["a.tar", "--key", "__key__"];
    assert_eq!(import(at, &base).status.code(), Some(3));
    let named = ["--as", "json.x=FP64", "--as", "json.l=FP64"];
    for types in [&["--as", "*=FP64"][..], &named] {
        succeed(at, &[&base[..], types].concat());
        assert_eq!(rows(at), 150);
        for (key, value) in [("147", 7.0), ("148", 9_007_199_254_740_992.0), ("149", 7.25)] {
            assert_eq!(column(at, key.as_bytes(), "json.x"), f64::to_le_bytes(value), "{key}");
            assert_eq!(
                column(at, key.as_bytes(), "json.l"),
                le(&[1.0, value], f64::to_le_bytes),
                "{key}"
            );
        }
    }
    let record = |kind| {
        let feature = [("x".to_owned(), Feature { kind: Some(kind) })].into();
        let features = Some(Features { feature });
        Example { features }.encode_to_vec()
    };
    let mut bytes = Vec::new();
    for i in 0..149 {
        tfrecord::push(&record(Kind::Int64List(Int64List { value: vec![i] })), &mut bytes);
    }
    tfrecord::push(&record(Kind::FloatList(FloatList { value: vec![0.5] })), &mut bytes);
    fs::write(at.join("a.tfrecord"), bytes).unwrap();
    let base = ["a.tfrecord", "--key", "@row"];
    assert_eq!(import(at, &base).status.code(), Some(3));
    succeed(at, &[&base[..], &["--as", "x=FP32"]].concat());
    let value = |row: i64| column(at, &row.to_le_bytes(), "x");
    assert_eq!([value(7), value(149)], [7_f32.to_le_bytes(), 0.5_f32.to_le_bytes()]);
}

#[test]
fn a_declared_text_is_one_under_any_extension() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let samples = ["007", "u-8"].into_iter().enumerate();
    let samples = samples.map(|(i, id)| {
        vec![
            (format!("{i}.id"), id.as_bytes().to_vec()),
            (format!("{i}.index"), i.to_string().into_bytes()),
        ]
    });
    archive(&at.join("a.tar"), samples);
    succeed(
        at,
        &["a.tar", "--key", "id", "--key-type", "string", "--columns", "index"],
    );
    assert_eq!((rows(at), column(at, b"007", "index")), (2, vec![0; 8]));
    assert_eq!(column(at, b"u-8", "index"), 1_i64.to_le_bytes());
    succeed(at, &["a.tar", "--key", "index", "--columns", "id", "--hash", "id=1000"]);
    assert_eq!(rows(at), 2);
}

#[test]
fn a_column_that_the_first_samples_lack_is_not_left_out_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let late = |i: i64| {
        let mut files = vec![(format!("{i}.cls"), b"7".to_vec())];
        files.extend((i == 150).then(|| (format!("{i}.json"), br#"{"late": 1}"#.to_vec())));
        files
    };
    archive(&at.join("a.tar"), (0..200).map(late));
    let refused = fail(at, &["a.tar", "--key", "__key__"]);
    assert!(
        refused.contains("150: `json.late`") && refused.contains("--columns"),
        "{refused}"
    );
    succeed(at, &["a.tar", "--key", "__key__", "--columns", "cls"]);
    assert_eq!(rows(at), 200);
    fs::create_dir(at.join("p")).unwrap();
    examples(&at.join("p/0.tfrecord"), 3);
    fs::write(at.join("p/1.tfrecord"), {
        let kind = Some(Kind::FloatList(FloatList { value: vec![0.5] }));
        let feature = [("late".to_owned(), Feature { kind })].into();
        let example = Example {
            features: Some(Features { feature }),
        };
        let mut bytes = Vec::new();
        tfrecord::push(&example.encode_to_vec(), &mut bytes);
        bytes
    })
    .unwrap();
    let refused = fail(at, &["p", "--key", "user"]);
    assert!(
        refused.contains("1.tfrecord") && refused.contains("`late`"),
        "{refused}"
    );
}

#[test]
fn shards_in_a_folder_are_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("shards")).unwrap();
    archive(&at.join("shards/x-0.tar"), (0..300).map(sample));
    archive(&at.join("shards/x-1.tar"), (300..500).map(sample));
    succeed(at, &["shards", "--key", "__key__", "--columns", COLUMNS]);
    assert_eq!(rows(at), 500);
    assert_eq!(column(at, b"train/499", "cls"), 9_i64.to_le_bytes());
}

#[test]
fn shards_have_the_columns_of_their_folders_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for day in [3, 4] {
        fs::create_dir_all(at.join(format!("p/day={day}"))).unwrap();
        let samples = (0..2).map(|i| vec![(format!("{day}-{i}.cls"), b"7".to_vec())]);
        archive(&at.join(format!("p/day={day}/a.tar")), samples);
    }
    succeed(at, &["p", "--key", "__key__"]);
    assert_eq!(rows(at), 4);
    for day in [3_i64, 4] {
        let key = format!("{day}-1");
        assert_eq!(column(at, key.as_bytes(), "day"), day.to_le_bytes());
        assert_eq!(column(at, key.as_bytes(), "cls"), 7_i64.to_le_bytes());
    }
}

#[test]
fn a_sample_that_does_not_fit_is_kept_aside_and_a_cut_archive_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let damaged = |i: i64| {
        let mut files = sample(i);
        match i {
            150 => files[0].1 = b"seven".to_vec(),
            151 => files[1].1 = npy(&[1.0]),
            152 => files[1].1 = b"not an array".to_vec(),
            _ => {}
        }
        files
    };
    archive(&at.join("a.tar"), (0..200).map(damaged));
    let import = ["a.tar", "--key", "__key__", "--columns", COLUMNS];
    succeed(at, &[&import[..], &["--allow-bad-rows", "3"]].concat());
    assert_eq!(rows(at), 197);
    let bad = fs::read_to_string(at.join("f/t.bad.jsonl")).unwrap();
    for word in ["seven", "emb.npy", "train/150", "train/152"] {
        assert!(bad.contains(word), "{word}: {bad}");
    }
    assert_eq!(bad.lines().count(), 3, "{bad}");

    let whole = fs::read(at.join("a.tar")).unwrap();
    fs::write(at.join("a.tar"), &whole[..whole.len() - 2000]).unwrap();
    let refused = fail(at, &import);
    assert!(refused.contains("a.tar") && refused.contains("cut off"), "{refused}");
    // Between two members: a reader sees no fault except the missing end.
    fs::write(at.join("a.tar"), &whole[..whole.len() - 1024]).unwrap();
    let refused = fail(at, &import);
    assert!(refused.contains("blocks of zeros"), "{refused}");
    let twice = vec![("1.cls".to_owned(), b"1".to_vec()), ("1.cls".to_owned(), b"2".to_vec())];
    archive(&at.join("a.tar"), std::iter::once(twice));
    let refused = fail(at, &["a.tar", "--key", "__key__"]);
    assert!(refused.contains("two files `.cls`"), "{refused}");
    archive(
        &at.join("a.tar"),
        std::iter::once(vec![("readme".to_owned(), Vec::new())]),
    );
    let refused = fail(at, &["a.tar", "--key", "__key__"]);
    assert!(refused.contains("KEY.EXTENSION"), "{refused}");
}

#[test]
fn archives_that_were_put_behind_each_other_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    archive(&at.join("a.tar"), (0..50).map(sample));
    let mut bytes = fs::read(at.join("a.tar")).unwrap();
    archive(&at.join("b.tar"), (50..80).map(sample));
    bytes.extend(fs::read(at.join("b.tar")).unwrap());
    fs::write(at.join("a.tar"), bytes).unwrap();
    succeed(at, &["a.tar", "--key", "__key__", "--columns", COLUMNS]);
    assert_eq!(rows(at), 80);
    assert_eq!(column(at, b"train/77", "cls"), 7_i64.to_le_bytes());
}

#[test]
fn archives_of_pythons_tarfile_are_read_in_each_of_its_formats() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Longer than the 100 bytes of a name: ustar puts the folders into its prefix, other formats into a separate
    // header.
    let long = format!("{}/{}", "p".repeat(60), "k".repeat(60));
    let script = format!(
        "import io, sys, tarfile\n\
         for name, form in (('gnu', tarfile.GNU_FORMAT), ('pax', tarfile.PAX_FORMAT), ('ustar', tarfile.USTAR_FORMAT)):\n\
         \x20   with tarfile.open(name + '.tar', 'w', format=form) as out:\n\
         \x20       for key in ('d/1', 'd/{long}', 'd/ü'):\n\
         \x20           for extension, text in (('cls', '7'), ('txt', 'word')):\n\
         \x20               about = tarfile.TarInfo(f'{{key}}.{{extension}}')\n\
         \x20               about.size = len(text)\n\
         \x20               out.addfile(about, io.BytesIO(text.encode()))\n"
    );
    let python = Command::new("python3")
        .current_dir(at)
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(python.status.success(), "{}", output_text(&python));
    for name in ["gnu.tar", "pax.tar", "ustar.tar"] {
        succeed(at, &[name, "--key", "__key__", "--hash", "txt=1000"]);
        assert_eq!(rows(at), 3, "{name}");
        let wide = "d/ü".as_bytes();
        assert_eq!(column(at, wide, "cls"), 7_i64.to_le_bytes(), "{name}");
        assert_eq!(column(at, wide, "txt"), column(at, b"d/1", "txt"), "{name}");
    }
}

fn examples(path: &Path, count: i64) -> Vec<u64> {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    for i in 0..count {
        let feature: BTreeMap<String, Feature> = [
            (
                "user",
                Kind::BytesList(BytesList {
                    value: vec![format!("u-{i}").into_bytes()],
                }),
            ),
            ("label", Kind::Int64List(Int64List { value: vec![i % 2] })),
            (
                "dense",
                Kind::FloatList(FloatList {
                    value: vec![i as f32, 0.5],
                }),
            ),
            // Sometimes one element, but always a list.
            (
                "ids",
                Kind::Int64List(Int64List {
                    value: (0..3).map(|part| i + part).collect(),
                }),
            ),
            (
                "image",
                Kind::BytesList(BytesList {
                    value: vec![vec![0x80 | (i % 100) as u8; 6]],
                }),
            ),
        ]
        .into_iter()
        .map(|(name, kind)| (name.to_owned(), Feature { kind: Some(kind) }))
        .collect();
        starts.push(bytes.len() as u64);
        let example = Example {
            features: Some(Features { feature }),
        };
        tfrecord::push(&example.encode_to_vec(), &mut bytes);
    }
    fs::write(path, bytes).unwrap();
    starts
}

#[test]
fn records_of_tensorflow_become_rows_and_damage_is_named_with_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = at.join("x.tfrecord-00000-of-00001");
    let starts = examples(&file, 1500);
    let import = ["x.tfrecord-00000-of-00001", "--key", "user"];
    succeed(at, &import);
    assert_eq!(rows(at), 1500);
    // Programs write a part without records as a file without bytes.
    fs::create_dir(at.join("p")).unwrap();
    fs::copy(&file, at.join("p/x.tfrecord-00001-of-00002")).unwrap();
    fs::write(at.join("p/x.tfrecord-00000-of-00002"), []).unwrap();
    succeed(at, &["p", "--key", "user"]);
    assert_eq!(rows(at), 1500);
    let refused = fail(at, &["p/x.tfrecord-00000-of-00002", "--key", "user"]);
    assert!(refused.contains("it is empty"), "{refused}");
    for i in [0_i64, 1023, 1024, 1499] {
        let key = format!("u-{i}");
        let get = |name: &str| column(at, key.as_bytes(), name);
        assert_eq!(get("label"), (i % 2).to_le_bytes());
        assert_eq!(get("dense"), le(&[i as f32, 0.5], f32::to_le_bytes));
        assert_eq!(get("ids"), le(&[i, i + 1, i + 2], i64::to_le_bytes));
        assert_eq!(get("image"), vec![0x80 | (i % 100) as u8; 6]);
    }
    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[starts[700] as usize + 30] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let refused = fail(at, &import);
    let offset = (starts[700] + 12).to_string();
    assert!(
        refused.contains("checksum of a record") && refused.contains(&offset),
        "{refused}"
    );
    fs::write(&file, &whole[..whole.len() - 3]).unwrap();
    let refused = fail(at, &import);
    assert!(
        refused.contains("cut off") && refused.contains(&starts[1499].to_string()),
        "{refused}"
    );
}
