/** A path of at least two parts, alone or as a file's address. Not the path of a web address: its host stands before it. */
const PATH = /(?<![\w./@-])(?:file:\/\/)?\/(?:[^\s'"`:;,()<>[\]{}|/]+\/)+([^\s'"`:;,()<>[\]{}|/]*)/g;

/**
 * The text of a caught error for a tenant. Errors of files and processes name paths of the host, which no tenant may learn: their text is the
 * code, its meaning and the operation. In any other text a path becomes the name of its file. The caller logs the error itself.
 */
export function textForTenant(error: unknown): string {
  if (!(error instanceof Error)) return withoutPaths(String(error));
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (typeof code !== 'string' || typeof syscall !== 'string') return withoutPaths(error.message);
  // The operation of a failed `spawn` has the path of the program.
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

/** Makes a function for failures that no caller caused: it passes them to `log`, with their paths, and returns their texts for callers. */
export function failureReporter(log: (caught: unknown) => void): (caught: unknown) => string {
  /** Texts, the one logged longest ago first, with the times of their last lines in the log. */
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
