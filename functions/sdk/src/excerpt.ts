/** The beginning of a text, at most `most` UTF-16 units, without splitting a surrogate pair. */
export function excerpt(text: string, most: number): string {
  if (text.length <= most) return text;
  const last = text.charCodeAt(most - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most);
}
