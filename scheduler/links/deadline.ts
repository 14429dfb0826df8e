/**
 * Calls back after `ms` milliseconds. When this process was stopped or starved past the deadline, it first reads the bytes that arrived meanwhile,
 * because the awaited answer may be among them.
 * @returns the function that cancels the call
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
