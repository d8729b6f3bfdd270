// Puts a text field above each table in an element of class "filtered": rows without every word that is typed are hidden.
// The words are kept in the address of the page, so that a filtered table can be linked: ?keys=batch+torch
for (const element of document.querySelectorAll(".filtered")) {
  const rows = [...element.querySelectorAll("tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
  const field = Object.assign(document.createElement("input"), {
    type: "search",
    placeholder: "Filter",
    value: new URLSearchParams(location.search).get("keys") ?? "",
  });
  field.setAttribute("aria-label", "Filter the table");
  const count = document.createElement("output");

  function filter() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
  }

  field.addEventListener("input", () => {
    const address = new URL(location.href);
    if (field.value) address.searchParams.set("keys", field.value);
    else address.searchParams.delete("keys");
    history.replaceState(null, "", address);
    filter();
  });
  element.prepend(field, count);
  filter();
}
