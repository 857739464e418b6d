"""Many runs: settings × seeds as a file, run side by side, found again by their index."""
