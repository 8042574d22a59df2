"use strict";
// The functions of numpy_functions.py for one sample. A tensor: {shape: [1, ...], data}.

const size = (shape) => shape.reduce((a, b) => a * b, 1);
const made = (shape, data = new Float32Array(size(shape))) => ({ shape, data });
const mapped = (x, f) => made(x.shape, x.data.map(f));

// f(value, channel) of each value.
function perChannel(x, f) {
  const area = size(x.shape.slice(2)), channels = x.shape[1];
  return mapped(x, (v, at) => f(v, Math.floor(at / area) % channels));
}

const biased = (x, b) => (b ? perChannel(x, (v, c) => v + b.data[c]) : x);

// y[at + o * step] = the product of x with row `first + o` of w, o < count.
function products(w, first, count, x, y, at, step) {
  const length = x.length;
  for (let o = 0; o < count; o++) {
    const row = (first + o) * length;
    let sum = 0;
    for (let n = 0; n < length; n++) sum += w[row + n] * x[n];
    y[at + o * step] = sum;
  }
}

// The windows over x, of each group of its channels: `at` gives what one has at a place.
function windows(x, kernel, stride, padding, dilation, fill, groups) {
  x = operations.pad(x, padding, fill);
  const [, channels, height, width] = x.shape, inner = channels / groups;
  const count = (side, i) => Math.floor((side - dilation[i] * (kernel[i] - 1) - 1) / stride[i]) + 1;
  const [rows, columns] = [height, width].map(count);
  const seen = new x.data.constructor(inner * kernel[0] * kernel[1]);
  const at = (group, place) => {
    const top = Math.floor(place / columns) * stride[0], left = (place % columns) * stride[1];
    let n = 0;
    for (let c = group * inner; c < (group + 1) * inner; c++) {
      for (let i = 0; i < kernel[0]; i++) {
        const from = (c * height + top + i * dilation[0]) * width + left;
        for (let j = 0; j < kernel[1]; j++) seen[n++] = x.data[from + j * dilation[1]];
      }
    }
    return seen;
  };
  return { rows, columns, at };
}

const sum = (a, b) => a + b;

function pooled(x, kernel, stride, padding, fill, fold) {
  const channels = x.shape[1];
  const { rows, columns, at } = windows(x, kernel, stride, padding, [1, 1], fill, channels);
  const y = made([1, channels, rows, columns]), area = rows * columns;
  return mapped(y, (_, n) => at(Math.floor(n / area), n % area).reduce(fold));
}

function normalised(x, shape, kernel, padding, alpha, beta, k) {
  const squares = made(shape, x.data.map((v) => v * v));
  const sums = pooled(squares, kernel, [1, 1], padding, 0, sum);
  return mapped(x, (v, at) => v * (k + alpha * sums.data[at]) ** -beta);
}

// f of each score less the logarithm of the sum of all powers, over the channels of each place.
function scores(x, f) {
  const area = size(x.shape.slice(2)), most = x.data.reduce((a, b) => Math.max(a, b));
  const totals = new Float64Array(area);
  x.data.forEach((v, at) => (totals[at % area] += Math.exp(v - most)));
  return mapped(x, (v, at) => f(v - most - Math.log(totals[at % area])));
}

// The error function, to 1.5e-7 (Abramowitz and Stegun 7.1.26).
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const terms = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  const sum = terms.reduce((total, term) => total * t + term, 0) * t;
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

// The nearest integer, half to even.
function rint(v) {
  const near = Math.round(v);
  return near - v === 0.5 && near % 2 ? near - 1 : near;
}

const hardsigmoid = (v) => Math.min(Math.max(v + 3, 0), 6) / 6;
const sigmoid = (v) => 1 / (1 + Math.exp(-v));
const operations = {
  conv2d(x, w, b, stride, padding, dilation, groups) {
    const [filters, , ...kernel] = w.shape, each = filters / groups;
    const { rows, columns, at } = windows(x, kernel, stride, padding, dilation, 0, groups);
    const area = rows * columns, y = new x.data.constructor(filters * area);
    for (let n = 0; n < groups * area; n++) {
      const group = Math.floor(n / area), place = n % area, first = group * each;
      products(w.data, first, each, at(group, place), y, first * area + place, area);
    }
    return biased(made([1, filters, rows, columns], y), b);
  },
  matmul(x, { shape: [count], data }, b) {
    const y = new x.data.constructor(count);
    products(data, 0, count, x.data, y, 0, 1);
    return biased(made([1, count], y), b);
  },
  affine: (x, { data: scale }, { data: shift }) =>
    perChannel(x, (v, c) => v * scale[c % scale.length] + shift[c % shift.length]),
  max_pool: (x, kernel, stride, padding) =>
    pooled(x, kernel, stride, padding, -Infinity, (a, b) => Math.max(a, b)),
  avg_pool(x, kernel, stride, padding) {
    const [sums, inside] = [x, mapped(x, () => 1)].map((each) =>
      pooled(each, kernel, stride, padding, 0, sum));
    return mapped(sums, (v, at) => v / inside.data[at]);
  },
  add: (x, ...terms) => mapped(x, (v, at) => terms.reduce((sum, t) => sum + t.data[at], v)),
  concat(...parts) {
    const data = Float32Array.from(parts.flatMap((x) => [...x.data]));
    const rest = parts[0].shape.slice(2);
    return made([1, data.length / size(rest), ...rest], data);
  },
  part(x, begin, end) {
    const rest = x.shape.slice(2), area = size(rest);
    return made([1, end - begin, ...rest], x.data.slice(begin * area, end * area));
  },
  pad(x, [top, bottom, left, right], value) {
    const [n, channels, height, width] = x.shape;
    const rows = height + top + bottom, across = width + left + right;
    const y = new x.data.constructor(channels * rows * across).fill(value);
    for (let row = 0; row < channels * height; row++) {
      const at = (Math.floor(row / height) * rows + top + (row % height)) * across + left;
      y.set(x.data.subarray(row * width, (row + 1) * width), at);
    }
    return made([n, channels, rows, across], y);
  },
  pad_channels(x, channels) {
    const y = made([1, channels, ...x.shape.slice(2)]);
    y.data.set(x.data);
    return y;
  },
  reshape: (x, shape) => made([x.data.length / size(shape), ...shape], x.data),
  lrn(x, n, alpha, beta, k) {
    const shape = [1, 1, x.shape[1], size(x.shape.slice(2))], half = Math.floor(n / 2);
    return normalised(x, shape, [n, 1], [half, half, 0, 0], alpha / n, beta, k);
  },
  divisive_norm: (x, n, alpha, beta, k) =>
    normalised(x, x.shape, [n, n], Array(4).fill(Math.floor(n / 2)), alpha / n ** 2, beta, k),
  rbf(x, { shape: [count, length], data }) {
    const distance = (k) => x.data.reduce((sum, v, i) => sum + (v - data[k * length + i]) ** 2, 0);
    return made([1, count], Float32Array.from({ length: count }, (_, k) => -distance(k)));
  },
  heaviside: (x) => mapped(x, (v) => (v > 0 ? 1 : 0)),
  relu: (x) => mapped(x, (v) => Math.max(v, 0)),
  relu6: (x) => mapped(x, (v) => Math.min(Math.max(v, 0), 6)),
  hardsigmoid: (x) => mapped(x, hardsigmoid),
  hardswish: (x) => mapped(x, (v) => v * hardsigmoid(v)),
  mish: (x) => mapped(x, (v) => v * Math.tanh(Math.max(v, 0) + Math.log1p(Math.exp(-Math.abs(v))))),
  leaky_relu: (x, alpha) => mapped(x, (v) => (v > 0 ? v : v * alpha)),
  sigmoid: (x) => mapped(x, sigmoid),
  tanh: (x) => mapped(x, Math.tanh),
  elu: (x, alpha) => mapped(x, (v) => (v > 0 ? v : alpha * Math.expm1(v))),
  softplus: (x) => mapped(x, (v) => Math.max(v, 0) + Math.log1p(Math.exp(-Math.abs(v)))),
  silu: (x) => mapped(x, (v) => v * sigmoid(v)),
  gelu: (x) => mapped(x, (v) => 0.5 * v * (1 + erf(v * Math.SQRT1_2))),
  gelu_tanh: (x) => mapped(x, (v) => v * sigmoid(Math.sqrt(8 / Math.PI) * (v + 0.044715 * v ** 3))),
  scaled_tanh: (x) => mapped(x, (v) => 1.7159 * Math.tanh((v * 2) / 3)),
  softmax: (x) => scores(x, Math.exp),
  log_softmax: (x) => scores(x, (v) => v),
  wide: (x) => made(x.shape, Float64Array.from(x.data)),
  quantize: (x, scale, low, high) =>
    mapped(x, (v) => Math.min(Math.max(rint(Math.fround(v / Math.fround(scale))), low), high)),
  scaled(total, s, b, floor) {
    const y = perChannel(total, (v, c) => v * s.data[c] + b.data[c]);
    return made(y.shape, Float32Array.from(y.data, (v) => (floor ? Math.max(v, 0) : v)));
  },
};

function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const value = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
  return bits >> 15 ? -value : value;
}

// The arrays of a file: of each the first bytes of all values, then the second ones, and so on.
async function unpacked(layout, text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let at = 0;
  const take = (Type, count) => {
    const width = Type.BYTES_PER_ELEMENT, found = new Uint8Array(width * count);
    found.forEach((_, i) => (found[(i % count) * width + Math.floor(i / count)] = bytes[at++]));
    return new Type(found.buffer);
  };
  const kinds = {
    float32: (count) => take(Float32Array, count),
    float64: (count) => take(Float64Array, count),
    float16: (count) => Float32Array.from(take(Uint16Array, count), half),
    int8: (count) => Float32Array.from(take(Int8Array, count)),
  };
  const read = ([name, kind, shape]) => [name, made(shape, kinds[kind](size(shape)))];
  return Object.fromEntries(layout.map(read));
}

// Each call in turn: [its layers, the tensor, whether others follow]; the last is the answer. `raw`
// is in the order C, H, W.
function* run(model, arrays, raw) {
  const area = raw.length / model.scale.length, channel = (i) => Math.floor(i / area);
  const x = Float32Array.from(raw, (v, i) => v * model.scale[channel(i)] + model.shift[channel(i)]);
  const known = { ...arrays, x: made([1, ...model.input], x) };
  for (const [at, [layers, y, chain]] of model.calls.entries()) {
    for (const [name, ...given] of chain) {
      const own = given.map((each) => (typeof each === "string" ? known[each] : each));
      known[y] = operations[name](...(known[y] ? [known[y]] : []), ...own);
    }
    const next = model.calls[at + 1];
    yield [layers, known[y], next && `${next[0]}` !== `${layers}`];
  }
}
