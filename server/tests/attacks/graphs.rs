//! Graphs whose runs take as long as a client says.

use tierlab_models::onnx::graph::int;
use tierlab_models::onnx::messages::{
    AttributeProto, AttributeType, ElementType, FunctionProto, NodeProto, OperatorSetIdProto,
};
use tierlab_models::onnx::{GraphBuilder, ModelProto, OPSET};

/// Turns of a loop that nobody sees the end of.
pub(crate) const ENDLESS: f32 = 1e15;

fn body(name: &str, graph: GraphBuilder) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        g: graph.finish("").graph,
        r#type: AttributeType::Graph.into(),
        ..AttributeProto::default()
    }
}

/// `x` FP32 [-1, 1]: goes as many times round a loop as its largest element says, and as many as `more` on top, and gives
/// `x` back with 1 added each time.
pub(crate) fn loops(more: f32) -> ModelProto {
    let mut inner = GraphBuilder::new("turn");
    inner.input("turn", ElementType::Int64, &[]);
    let condition = inner.input("go_on", ElementType::Bool, &[]);
    let before = inner.input("before", ElementType::Float, &[-1, 1]);
    let unchanged = inner.node("still", "Identity", &[&condition], &[]);
    let one = inner.floats("one", &[1], &[1.0]);
    let after = inner.node("after", "Add", &[&before, &one], &[]);
    inner.output(&unchanged, ElementType::Bool, &[]);
    inner.output(&after, ElementType::Float, &[-1, 1]);
    let mut graph = GraphBuilder::new("turns");
    let x = graph.input("x", ElementType::Float, &[-1, 1]);
    let most = graph.node("most", "ReduceMax", &[&x], &[int("keepdims", 0)]);
    let more = graph.floats("more", &[], &[more]);
    let sum = graph.node("sum", "Add", &[&most, &more], &[]);
    let count = graph.node("count", "Cast", &[&sum], &[int("to", ElementType::Int64 as i64)]);
    let yes = graph.constant("yes", ElementType::Bool, &[], vec![1].into());
    let y = graph.node("y", "Loop", &[&count, &yes, &x], &[body("body", inner)]);
    graph.output(&y, ElementType::Float, &[-1, 1]);
    graph.finish("goes round")
}

/// `x` FP32 [1]: so many boxes that do not overlap are compared with each other in one operator, which ONNX Runtime does
/// not interrupt; `y` INT64 [2] says how many are left.
pub(crate) fn compares() -> ModelProto {
    let mut graph = GraphBuilder::new("compares");
    let x = graph.input("x", ElementType::Float, &[1]);
    let scalar = graph.ints("scalar", &[0], &[]);
    let (zero, one, half) = (
        graph.floats("zero", &[], &[0.0]),
        graph.floats("one", &[], &[1.0]),
        graph.floats("half", &[], &[0.5]),
    );
    let n = graph.node("n", "Reshape", &[&x, &scalar], &[]);
    let range = graph.node("range", "Range", &[&zero, &n, &one], &[]);
    let column = graph.ints("column", &[3], &[1, -1, 1]);
    let row = graph.ints("row", &[3], &[1, 1, -1]);
    let top = graph.node("top", "Reshape", &[&range, &column], &[]);
    let left = graph.node("left", "Mul", &[&top, &zero], &[]);
    let bottom = graph.node("bottom", "Add", &[&top, &half], &[]);
    let right = graph.node("right", "Add", &[&left, &one], &[]);
    let boxes = graph.node("boxes", "Concat", &[&top, &left, &bottom, &right], &[int("axis", 2)]);
    let scores = graph.node("scores", "Reshape", &[&right, &row], &[]);
    let all = graph.ints("all", &[1], &[1 << 40]);
    let selected = graph.node("kept", "NonMaxSuppression", &[&boxes, &scores, &all], &[]);
    let y = graph.node("y", "Shape", &[&selected], &[]);
    graph.output(&y, ElementType::Int64, &[2]);
    graph.finish("compares boxes")
}

/// `x` FP32 [1]: a function that calls another twice, `depth` levels deep. Building a session of it takes the time and the
/// memory of two to the power of `depth` operators.
pub(crate) fn nested(depth: usize) -> ModelProto {
    const DOMAIN: &str = "nested";
    let node = |op: &str, domain: &str, inputs: &[&str], output: &str| NodeProto {
        input: inputs.iter().map(|&input| input.to_owned()).collect(),
        output: vec![output.to_owned()],
        op_type: op.to_owned(),
        domain: domain.to_owned(),
        ..NodeProto::default()
    };
    let opset = |domain: &str, version| OperatorSetIdProto {
        domain: domain.to_owned(),
        version,
    };
    let function = |level: usize| {
        let (op, domain) = match level {
            0 => ("Neg".to_owned(), ""),
            _ => (format!("f{}", level - 1), DOMAIN),
        };
        FunctionProto {
            name: format!("f{level}"),
            domain: DOMAIN.to_owned(),
            input: vec!["x".to_owned()],
            output: vec!["y".to_owned()],
            node: vec![
                node(&op, domain, &["x"], "a"),
                node(&op, domain, &["x"], "b"),
                node("Add", "", &["a", "b"], "y"),
            ],
            opset_import: vec![opset("", OPSET), opset(DOMAIN, 1)],
            ..FunctionProto::default()
        }
    };
    let mut graph = GraphBuilder::new("nested");
    graph.input("x", ElementType::Float, &[1]);
    graph.output("y", ElementType::Float, &[1]);
    let mut model = graph.finish("calls functions");
    if let Some(graph) = &mut model.graph {
        graph.node.push(node(&format!("f{}", depth - 1), DOMAIN, &["x"], "y"));
    }
    model.functions = (0..depth).map(function).collect();
    model.opset_import.push(opset(DOMAIN, 1));
    model
}

/// `x` FP32 [1]: adds as many zeros as `bytes` hold, a constant that ONNX Runtime computes while it builds the session.
pub(crate) fn constant(bytes: i64) -> ModelProto {
    let mut graph = GraphBuilder::new("constant");
    let x = graph.input("x", ElementType::Float, &[1]);
    let shape = graph.ints("shape", &[1], &[bytes / 4]);
    let zeros = graph.node("zeros", "ConstantOfShape", &[&shape], &[]);
    let sum = graph.node("sum", "Add", &[&x, &zeros], &[]);
    let y = graph.node("y", "ReduceMax", &[&sum], &[]);
    graph.output(&y, ElementType::Float, &[1]);
    graph.finish("a large constant")
}
