/** A path of at least two parts, plain or in a `file:` address. It excludes the path of a web address, which follows the name of a host. */
const PATH = /(?<![\w./@-])(?:file:\/\/)?\/(?:[^\s'"`:;,()<>[\]{}|/]+\/)+([^\s'"`:;,()<>[\]{}|/]*)/g;

/**
 * The text of a caught error for a tenant, without paths of the host, which no tenant may learn. An error of a file or process becomes its code, the
 * code's meaning and the operation. In any other text, a path becomes the name of its file. The caller logs the complete error.
 */
export function textForTenant(error: unknown): string {
  if (!(error instanceof Error)) return withoutPaths(String(error));
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (typeof code !== 'string' || typeof syscall !== 'string') return withoutPaths(error.message);
  // In the error of a failed `spawn`, the path of the program follows the operation.
  const [operation = ''] = syscall.split(' ');
  const [meaning = ''] = error.message.split(`, ${operation}`);
  return meaning.startsWith(`${code}: `) ? `${meaning}, ${operation}` : `${operation} ${code}`;
}

function withoutPaths(text: string): string {
  return text.replace(PATH, '$1');
}

/** Shortest time between two logged failures of one text: one fault may fail many calls. */
const LOG_EVERY_MS = 10_000;
/** Maximum number of texts whose times are remembered. */
const MAX_TEXTS = 100;

/** Makes a function for failures that no caller caused. This function passes a failure to `log`, with its paths, and returns the text for callers. */
export function failureReporter(log: (caught: unknown) => void): (caught: unknown) => string {
  /** Texts to the time at which each was last logged; the text that was logged longest ago comes first. */
  const loggedMs = new Map<string, number>();
  return (caught) => {
    const text = textForTenant(caught);
    const nowMs = performance.now();
    if (nowMs - (loggedMs.get(text) ?? Number.NEGATIVE_INFINITY) < LOG_EVERY_MS) return text;
    loggedMs.delete(text);
    const [oldest] = loggedMs.keys();
    if (loggedMs.size >= MAX_TEXTS && oldest !== undefined) loggedMs.delete(oldest);
    loggedMs.set(text, nowMs);
    log(caught);
    return text;
  };
}
