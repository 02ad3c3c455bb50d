// Colour scales that people with colour-blindness can read: one hue from paper to ink, and orange against blue.

const SCALES = {
  light: {
    rising: ["#ffffff", "#d3e5f3", "#7fb4d9", "#2a78b4", "#0b3c66"],
    signed: ["#8a3b00", "#d9792b", "#f6c796", "#ffffff", "#a9cfe8", "#3d8cc4", "#0b4475"],
  },
  dark: {
    rising: ["#171c23", "#1d3d59", "#2b70a6", "#6fb6e8", "#e4f3ff"],
    signed: ["#ffd9b0", "#e0873b", "#70401a", "#1b2027", "#1d4a6e", "#4a9bd4", "#d8eeff"],
  },
};

export const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const numbers = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
const tables = {};

// 256 colours of a scale, as a flat list of red, green, blue.
export function scale(kind) {
  const name = `${isDark() ? "dark" : "light"} ${kind}`;
  if (!tables[name]) {
    const stops = SCALES[isDark() ? "dark" : "light"][kind].map(numbers);
    tables[name] = Array.from({ length: 256 }, (_, step) => {
      const at = (step / 255) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
      return stops[low].map((part, place) => Math.round(part + (stops[low + 1][place] - part) * (at - low)));
    });
  }
  return tables[name];
}

// The place of a value in its scale, 0 to 255.
export const level = (value, most, signed) => {
  const share = signed ? 0.5 + value / (2 * most) : value / most;
  return Math.max(0, Math.min(255, Math.round(255 * (Number.isFinite(share) ? share : 0))));
};

export const colour = (value, most, signed) => `rgb(${scale(signed ? "signed" : "rising")[level(value, most, signed)].join(" ")})`;

// Black or white ink, whichever has the higher contrast on this colour: at least 4.58 (relative luminance as WCAG defines it).
export function inkOn(value, most, signed) {
  const [r, g, b] = scale(signed ? "signed" : "rising")[level(value, most, signed)].map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
