// What the two JavaScript programs print: a line per step, each value with its type.

function shown(value) {
  if (Array.isArray(value)) return value.map(shown);
  if (Buffer.isBuffer(value)) return `Buffer ${value}`;
  if (value instanceof Date) return `Date ${Math.floor(value / 1000)}`;
  if (value !== null && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, shown(member)]));
  return `${typeof value} ${value}`;
}

exports.step = (name, results = {}) => console.log(JSON.stringify({ step: name, ...shown(results) }));
