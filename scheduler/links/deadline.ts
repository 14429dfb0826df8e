/**
 * Calls back after `ms` milliseconds. A process that was stopped or starved past the deadline first reads the bytes that arrived meanwhile: the
 * awaited answer may be among them.
 * @returns the function that ends the wait
 */
export function deadline(ms: number, callback: () => void): () => void {
  let afterRead: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    afterRead = setImmediate(callback);
  }, ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(afterRead);
  };
}
