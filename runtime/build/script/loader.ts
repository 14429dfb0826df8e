type Run = (input: string) => Promise<string>;
/** The text of a script, once evaluated: it takes the engine's modules by name, and gives its exports. */
type Script = (find: (name: string) => unknown, give: (values: { readonly run?: unknown }) => void) => Promise<void>;

/**
 * Guest code: the part of the engine that evaluates a script. The first call of the engine's `run`, at deploy, gets the script's text; every call
 * after it is a run of the script's function.
 * @param wrap makes the component's `run` from a script's
 * @param modules interfaces of the contract by name
 */
export function loader(wrap: (run: unknown) => Run, modules: ReadonlyMap<string, unknown>): Run {
  // biome-ignore lint/security/noGlobalEval: the sandboxed engine exists to evaluate scripts
  const evaluate = globalThis.eval as (text: string) => Script;
  let inner: Run | null = null;
  const find = (name: string): unknown => {
    const module = modules.get(name);
    if (!module) throw new SyntaxError(`the engine has no module ${name}`);
    return module;
  };
  const load = async (text: string): Promise<string> => {
    let exported: { readonly run?: unknown } = {};
    try {
      await evaluate(text)(find, (values) => {
        exported = values;
      });
      inner = wrap(exported.run);
    } catch (thrown) {
      if (!(thrown instanceof Error)) throw new Error(`thrown: ${String(thrown)}`);
      throw new Error(`${thrown.name}: ${thrown.message}\n${thrown.stack ?? ''}`.toWellFormed());
    }
    return '';
  };
  return (input) => (inner === null ? load(input) : inner(input));
}
