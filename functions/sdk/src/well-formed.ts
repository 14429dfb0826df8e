/**
 * A host interface, or a resource of one, whose calls take any JavaScript string. A string may hold half a character (a surrogate without its
 * other half): WIT has no such text, and the engine ends the inferlet at one, which a client could send in its input. Here it becomes U+FFFD, as
 * everywhere on the web where text becomes UTF-8.
 */
export function wellFormed<T extends object>(host: T): T {
  if (typeof host === 'function') return wrapped(host as unknown as Callable) as unknown as T;
  const calls = Object.entries(host).map(([name, value]) => [
    name,
    typeof value === 'function' ? wrapped(value as Callable) : value,
  ]);
  return Object.fromEntries(calls) as T;
}

type Callable = ((...args: unknown[]) => unknown) & { readonly prototype?: object };

const seen = new WeakMap<Callable, Callable>();

/** One of each: the class that a resource is made of is the same wherever it is named. */
function wrapped(call: Callable): Callable {
  let own = seen.get(call);
  if (!own) {
    own = new Proxy(call, {
      apply: (target, self, args) => Reflect.apply(target, self, args.map(repaired)),
      construct: (target, args) => Reflect.construct(target, args.map(repaired)) as object,
    });
    seen.set(call, own);
    wrapMethods(call.prototype ?? {});
  }
  return own;
}

function wrapMethods(prototype: object): void {
  for (const [name, { value, writable }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
    if (name === 'constructor' || typeof value !== 'function' || !writable) continue;
    Object.defineProperty(prototype, name, {
      value(this: unknown, ...args: unknown[]): unknown {
        return Reflect.apply(value as Callable, this, args.map(repaired));
      },
      configurable: true,
      writable: true,
    });
  }
}

/** The same value with whole characters only; lists of numbers and resources pass untouched. */
function repaired(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return typeof value[0] === 'number' ? value : value.map(repaired);
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, repaired(member)]));
}
