/**
 * Wraps a host interface, or a resource of one, so that its calls take any JavaScript string. A client's input may hold a lone surrogate,
 * which WIT strings cannot represent: the engine would end the inferlet. The wrapper replaces lone surrogates by U+FFFD, as the web does
 * when it encodes UTF-8.
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

const wrappers = new WeakMap<Callable, Callable>();

/** Wraps each function once, so that a resource's class is identical wherever code names it. */
function wrapped(call: Callable): Callable {
  let wrapper = wrappers.get(call);
  if (!wrapper) {
    wrapper = new Proxy(call, {
      apply: (target, self, args) => Reflect.apply(target, self, args.map(repaired)),
      construct: (target, args) => Reflect.construct(target, args.map(repaired)) as object,
    });
    wrappers.set(call, wrapper);
    if (call.prototype) wrapMethods(call.prototype);
  }
  return wrapper;
}

/** Replaces the methods of a resource on its own prototype: the engine makes instances of the original class, too. */
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

/**
 * A copy of the value with lone surrogates replaced. A list of numbers passes unchanged, because it has no text. So does a resource, because it
 * must stay the same object.
 */
function repaired(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return typeof value[0] === 'number' ? value : value.map(repaired);
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, repaired(member)]));
}
